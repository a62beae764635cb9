"""Garbage: objects, versions and snapshots that are no longer needed.

``kinds`` says what objects are.  ``find`` finds free objects: ``conflicts`` looks at keys in conflict, ``flushes`` at
flushes, and ``unnamed_data_files`` only counts.  ``collect`` removes free objects, and also ``table_versions`` and
named ``snapshots`` whose time is over.  ``subscribed`` reads what subscriptions hold.  ``collect_all`` repeats this
until nothing is left.

May import: commit, context, upkeep.
"""
