"""The records that a table is judged by.

``source`` is the interface, ``topic`` and ``wal`` the two sources, ``eras`` the contracts under which records were
taken.

May import: nothing of this package.
"""
