"""State of a region beside its log: its generations, and their flushes.

``state`` is the value, and ``transitions`` say how it may change.  ``states`` reads and swaps the states of many
regions at a call; their bytes lie in ``pages``.  ``history`` has the generations that have left a state;
``region_listing`` lists them for many regions.  ``opened_table`` bundles all that a table's protocols use.  ``flush``
writes the ``flush_files`` of generations that have ended, many at a call.  Rows that are not in memory come from the
``generation_entries`` in the log.  ``flushes`` holds what a flush says of itself.  ``durable_position`` and
``loss_record`` say from where ingest goes on, and ``end_region`` ends what the owner of a region has open.

May import: errors, names, process, proto, region.flushes, region.pages, rows, store, table, wal.
"""
