"""The write-ahead log of one ingest process.

``entry`` is what a region has in a segment; ``segment`` is one object as bytes, ``bundle`` one with copies of many;
``writer`` puts segments one after the other; ``walk`` reads a log, by what a ``segment_cache`` has and what is ``listed``;
``log_end`` finds where it ends, or ends it with a fence; ``tail`` looks again and again how far it has come.

May import: errors, names, process, proto, rows, store.
"""
