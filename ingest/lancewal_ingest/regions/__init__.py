"""The regions of one process, from takeover to hand-over.

``partitions`` keeps which partitions wait, are open or have stopped.  ``open`` takes regions over.  ``intake``
consumes their records, and ``consumer_pause`` pauses the consumer.  ``memtable`` holds a region's rows.  ``policy``
has limits, and decides when to seal, ``seal`` is the protocol, and ``sealing`` runs it.  ``led_past`` reopens stopped
partitions whose position a command has moved, and ``schema_waits`` lets partitions wait for schemas.  ``leaving``
hands regions over, ``flush_queue`` has generations flushed, and ``offset_commits`` commits positions to the group.
Only the thread of the ingest loop calls these modules and changes which regions are open.  Requests to the store run
in tasks beside it.

May import: append, context, decode, glibc_heap, kafka, observer, registry, retention.
"""
