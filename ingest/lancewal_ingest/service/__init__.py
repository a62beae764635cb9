"""The ingest service.

``service`` builds it and runs the loop of ``worker``; ``store_probe`` asks first whether the store will do;
``standstill`` sees who does not move, ``metrics`` show what happens.

May import: append, context, decode, glibc_heap, kafka, observer, regions, retention.
"""
