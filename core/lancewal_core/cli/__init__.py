"""The program ``lancewal``, and the commands that need nothing but the core.

``program`` finds the commands of every installed part; ``options`` is what they share, ``named`` the partition or record
that they are about, and ``output`` how they print what comes from outside; then ``config``, ``pause`` and ``inspect``,
which shows what ``stored_object`` makes of an object.

May import: errors, ids, keys, paths, process, region, settings, store, table, wal.
"""
