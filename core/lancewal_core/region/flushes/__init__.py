"""What a flush says of the generations that it has: the value and its parts as they are stored.

``manifest`` names the parts of a flush, with ``fragment`` for its data files, ``key_checksum`` for the keys in them, and
``u64_segment`` for entries in the exported MemWAL message.

May import: errors, names, proto, rows, store, table.
"""
