"""Rows as values: types, keys, and what a sequence of operations makes of them. No storage.

``column_types`` and ``schema`` say what a row is, ``region_key`` and ``murmur2`` where it belongs, ``key_set`` which
rows have a key, ``fold`` what operations make of each key, ``projection`` which columns are carried, ``policy``
what becomes of records that are no rows, ``record_times`` between which times rows lie; ``ttl``, ``row_text``,
``byte_view``, ``own_rows`` and ``row_range``, a part of a batch, are details.

May import: errors.
"""
