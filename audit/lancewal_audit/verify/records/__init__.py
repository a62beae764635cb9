"""The records with which a table is compared.

``topic`` and ``wal`` read the two sources, ``source`` has the types that both use, and ``eras`` the contracts under
which records were decoded.  ``by_ids`` gives rows of an earlier contract the columns of a later one.

May import: taken_versions.
"""
