"""Read lancewal tables straight from object storage.  A read merges the table, the flushes and the tail of the WAL.

A program opens a ``table``, by its address or from a ``catalog``, and reads it as of now or at a ``point``.  ``cuts``
are several tables as of one moment.  A ``plan`` names the version, flushes and entries of one read.  ``unmerged``
folds the unmerged rows, and ``reading`` puts them together with the merged table.  ``search`` finds the nearest or
best rows.  ``changes`` says how two states differ, and ``subscriptions`` keep what consumers of changes still need.
``spark`` and ``commands`` are the other entry points.  ``event_table`` lists the log events, and ``forms`` converts
values and rows.
"""
