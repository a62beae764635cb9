"""Rows from elsewhere, in bulk.

``files`` (or a ``dataframe`` of Spark) are read, their ``parquet_times`` exactly, and their ``columns`` converted.
``whole`` brings them in part by part, each a commit (``part``), without keys that were deleted since (``deletes``).
``duplicates`` says what becomes of keys that come twice.

May import: define.
"""
