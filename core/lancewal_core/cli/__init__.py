"""The program ``lancewal``, and the commands that need nothing but the core.

``program`` finds the commands of every installed part.  ``groups`` is what all commands do alike, ``options`` the
options that they share, ``named`` the partition or record that they are about.  ``output`` prints what comes from
outside, ``logs`` sets up their log lines, ``progress_line`` shows their progress, and ``unused_imports`` keeps
modules from being loaded.  The commands are ``config``, ``pause``, ``estimate``, ``store`` and ``inspect``, which shows
what ``stored_object`` makes of an object.

May import: catalog, errors, keys, names, process, region, region.flushes, region.pages, settings, store, table,
table.proof, table.subscriptions, wal.
"""
