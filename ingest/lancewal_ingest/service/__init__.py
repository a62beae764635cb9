"""The ingest service.

``service`` builds it and runs the loop of ``worker``;
``standstill`` sees who does not move, ``freshness`` how old is what waits, ``admission`` holds back partitions, ``probes``
says what is not as it should be; ``metrics`` (declared in ``metric_table``) show what happens, ``status`` where records
stop (``recent_records``: what became of the newest); ``batch_check`` asks what
the topic lets in, ``contract_watch`` takes up what was altered, ``conflict_watch`` knows
which partitions stop for keys in conflict.

May import: append, context, event_table, glibc_heap, kafka, observer, python_collector,
regions, retention.
"""
