"""The Lance table as the protocols need it, and the objects that lancewal keeps beside it.

``protocol`` is the interface, and ``lance`` implements it.  ``contract`` defines the table, ``checks`` compares the
Lance table with it, and ``columns`` changes its columns.  ``watermarks`` says what a version has merged, and
``conflicts_ref`` which keys are in conflict there.  ``control`` holds the pauses of operators, and ``load_record``
the beginnings of bulk loads.  ``drain`` says up to which positions old partitions are consumed.  ``snapshots`` are
branches, and ``subscriptions`` keep data that consumers of changes still need.  ``presence`` says whether a table is
still at its place, and ``proof`` finds out whether a store keeps the promises that the protocol needs.

May import: errors, names, process, record_keys, rows, settings, store.
"""
