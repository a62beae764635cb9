"""State of a region next to its log: its generations and their flushes.

``state`` is the value, and ``transitions`` say how it may change.  ``states`` reads and swaps the states of many
regions in one call; ``pages`` holds their bytes.  ``history`` has the generations that have left a state;
``region_listing`` lists them for many regions.  ``opened_table`` bundles all that a table's protocols use.  ``flush``
writes the ``flush_files`` of generations that have ended, many in one call.  Rows that are not in memory come from the
``generation_entries`` in the log.  ``flushes`` describes a flush.  ``durable_position`` and ``loss_record`` say where
ingest goes on, and ``end_region`` ends a region's OPEN generation.

In a call for many regions, the *answer* of a region is its own result, or the error that concerns this region alone.

May import: errors, names, names.proto, process, region.flushes, region.pages, rows, store, table, wal.
"""
