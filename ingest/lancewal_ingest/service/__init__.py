"""The ingest service.

``service`` begins and ends it.  ``process`` has what tables share.  ``table`` is one of them: it turns the loop of
``worker``, and says what is not as it should be.  ``standstill`` sees partitions that do not move, and ``freshness`` how
old waiting records are.  ``admission`` holds back partitions.
``metrics`` (declared in ``metric_table``) show what happens, and ``status`` where records stop (``recent_records``:
what became of the newest).  ``batch_check`` asks what the topic lets in, ``contract_watch`` takes up an altered
contract, and ``conflict_watch`` knows which partitions stop for keys in conflict.

May import: append, context, event_table, glibc_heap, kafka, observer, python_collector, regions, retention.
"""
