"""The program ``lancewal``, and the commands that need nothing but the core.

``program`` finds the commands of every installed part; ``groups`` is what all commands do alike,
``options`` the options that they share, ``named`` the partition or record that they are about, ``output`` how they print
what comes from outside, ``logs`` what they log, ``progress_line`` how far
they are, and ``unused_imports`` what they keep from being loaded; then
``config``, ``pause``, ``estimate``, and ``inspect``, which shows what ``stored_object`` makes of an object.

May import: errors, keys, names, process, region, region.flushes, region.pages, settings, store, table, wal.
"""
