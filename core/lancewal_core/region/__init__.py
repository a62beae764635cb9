"""State of a region beside its log: its generations, and their flushes.

``state`` is the value, ``transitions`` say how it may change, ``states`` read and swap it, many at a call; the bytes of all
lie in ``pages``; ``history`` has what a state left behind, of many regions by a ``region_listing``.
``opened_table`` bundles all that a table's protocols use.
``flush`` writes the ``flush_files`` of each generation that has ended, many at a call, where memory has not its rows of the
``generation_entries`` in its log; what a flush says of itself is in ``flushes``;
``durable_position`` and ``loss_record`` say from where ingest goes on, ``end_region`` ends what its owner has open.

May import: errors, names, process, proto, region.flushes, region.pages, rows, store, table, wal.
"""
