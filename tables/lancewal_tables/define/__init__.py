"""Making and changing a table's contract.

``create`` and ``attach`` check a table (``topic``, ``unique_keys``) and ``register`` it.  ``alter`` writes a new
version of the contract, and ``move`` writes one that names a new place.  ``column_changes`` parses changes of columns,
and ``value_format`` changes the format of values.  ``drop`` drops a table, takes that back, and deletes its objects.

May import: nothing of this package.
"""
