"""The write-ahead log of one ingest process.

``entry`` is what a region has in a segment; ``segment`` is one object as bytes, ``bundle`` one with copies of many;
``writer`` puts segments one after the other; ``walk`` reads a log to its end, by what is ``listed``, and ends it with a fence;
``tail`` looks again and again how far it has come.

May import: errors, ids, paths, process, proto, rows, store, words.
"""
