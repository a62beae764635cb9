"""The regions of one process, from taking over to handing over.

``partitions`` are assigned, ``open`` takes one over, ``consumer_pause`` lets none deliver, ``memtable`` holds a region's rows,
``policy`` says when to ``seal``, and ``sealing`` asks it, ``leaving`` gives up, ``flush_queue`` has flushes written,
``offset_commits`` tells the group how far that is.
All of them are called by the thread of the ingest loop, which alone changes what regions are open; what waits for the store
runs beside it, in tasks.

May import: append, context, glibc_heap, kafka, observer, retention.
"""
