"""Rows as values: types, keys, and the result of a sequence of operations.  Nothing is stored here.

``column_types`` and ``schema`` say what a row is, ``region_key`` and ``murmur2`` where it belongs.  ``key_set`` says
which rows have a key, ``fold`` what operations make of each key.  ``projection`` gives rows the columns of another
contract, field by field by ``carry``.  ``equal_cells`` compares rows.  ``record_times`` says between which times rows
lie.  ``ttl``, ``byte_view``, ``own_rows`` and ``row_range``, a part of a batch, are details.

May import: errors.
"""
