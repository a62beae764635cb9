"""Description of a flush: the generations in it and where their content lies, as values and as stored.

``manifest`` names the parts of a flush.  ``fragment`` describes its data files, ``key_checksum`` the keys in them.
``u64_segment`` encodes the positions of entries in the exported MemWAL message.

May import: errors, names, names.proto, rows, store, table.
"""
