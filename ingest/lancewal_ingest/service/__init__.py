"""The ingest service.

``service`` builds it and runs the loop of ``worker``.  ``standstill`` sees partitions that do not move, ``freshness``
how old waiting records are, and ``admission`` holds back partitions.  ``probes`` says what is not as it should be.
``metrics`` (declared in ``metric_table``) show what happens, and ``status`` where records stop (``recent_records``:
what became of the newest).  ``batch_check`` asks what the topic lets in, ``contract_watch`` takes up an altered
contract, and ``conflict_watch`` knows which partitions stop for keys in conflict.

May import: append, context, event_table, glibc_heap, kafka, observer, python_collector, regions, retention.
"""
