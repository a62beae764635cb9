"""Forms of values and rows.

``plain_rows`` has values as JSON has them.  ``key_text`` reads keys in these forms, ``given_keys`` those of Python programs,
as ``given_numbers`` whole numbers.  Commands write rows as ``row_output``, and pandas has them as ``pandas_frames``.
``expressions`` of pyarrow become conditions in SQL, and values ``sql_literals`` of it.  ``conditions`` reads a filter
whole.  ``narrow_times`` are times in coarser units.

May import: nothing of this package.
"""
