"""Convert values and rows between the forms of users, JSON, SQL and Lance.

``plain_rows`` converts rows to values of JSON, and ``key_text`` reads keys written that way.  ``given_keys`` reads the
keys that Python programs pass, ``given_numbers`` the integers.  ``row_output`` writes rows for commands,
``pandas_frames`` makes frames of pandas.  ``expressions`` turns expressions of pyarrow into SQL conditions, and
``sql_literals`` writes values as SQL literals.  ``conditions`` parses a whole filter.  ``narrow_times`` casts times to
coarser units.

May import: nothing of this package.
"""
