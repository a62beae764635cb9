"""The Lance table as the protocols need it, and the objects that lancewal keeps beside it.

``protocol`` is the interface, ``lance`` implements it.  ``contract`` says what the table is, ``checks`` whether it still
is, ``columns`` what changes its columns.  ``watermarks`` says what a version has merged, and ``conflicts_ref`` what it has
set aside.  ``control`` holds an operator's words, ``load_record`` those of loads.  ``drain`` says how far old partitions
go.  ``snapshots`` are branches, and ``subscriptions`` keep what consumers of changes still need.  ``presence`` says
whether a table is still there, and ``proof`` finds out whether a store keeps what the protocol needs.

May import: errors, names, process, record_keys, rows, settings, store.
"""
