"""The write-ahead log of one ingest process.

``entry`` is the share of a region in a segment.  ``segment`` is one object as bytes, ``bundle`` an object with copies
of many segments.  ``writer`` puts segments one after the other.  ``walk`` reads a log, with the help of a
``segment_cache`` and of what is ``listed``.  ``log_end`` finds where a log ends, or ends it with a fence.  ``tail``
watches how far a log reaches.  ``writer_schemas`` are the schemas under which producers wrote the values.

May import: errors, names, names.proto, process, rows, store.
"""
