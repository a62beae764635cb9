"""The ingest service.

``service`` starts and ends it.  ``process`` holds the parts that tables share.  ``table`` is one table: it runs the
loop of ``worker``, and reports problems.  ``standstill`` finds partitions that do not move, and ``freshness`` computes
how old waiting records are.  ``metrics`` (declared in ``metric_table``) report events.  ``status`` shows where records
stop, and ``recent_records`` counts how many of the newest became rows.  ``batch_check`` checks which batches the topic
allows.  ``contract_watch`` lets the process follow an altered contract.  ``conflict_watch`` finds partitions that must
stop for keys in conflict.  ``python_collector`` lets Python's garbage collector run less often.

May import: append, context, decode, event_table, glibc_heap, kafka, observer, regions, registry, retention.
"""
