"""Bulk loads: rows from files, or from a Spark DataFrame, into a table.

``files`` and ``dataframe`` read the rows, ``parquet_times`` reads times exactly, and ``columns`` converts values.
``whole`` loads the rows in parts, each with one commit (``part``), without keys that were deleted since (``deletes``).
``duplicates`` is the policy for keys that come twice.

May import: define.
"""
