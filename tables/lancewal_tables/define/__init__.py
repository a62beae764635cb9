"""Making and changing a table's contract.

``create`` and ``attach`` check (``topic``, ``unique_keys``) and ``register`` a table; ``alter`` writes a new version of
its contract, ``move`` one for another place.

May import: nothing of this package.
"""
