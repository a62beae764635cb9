"""The regions of one process, from taking over to handing over.

``partitions`` are assigned, ``open`` takes one over, and ``consumer_pause`` lets none deliver.  ``memtable`` holds a
region's rows.  ``policy`` says when to ``seal``, and ``sealing`` asks it.  ``leaving`` gives regions up,
``flush_queue`` has flushes written, and ``offset_commits`` tells the group the positions.  The thread of the ingest
loop calls all of them, and it alone changes what regions are open.  What waits for the store runs beside it, in
tasks.

May import: append, context, glibc_heap, kafka, observer, retention.
"""
