"""Garbage: objects, versions and snapshots that nobody needs any more.

``kinds`` says what objects are.  ``find`` finds free ones: ``conflicts`` looks at keys in conflict, ``flushes`` at
flushes, and ``unnamed_data_files`` only counts.  ``collect`` removes free objects, and with them ``table_versions``
and named ``snapshots`` whose time is over.  ``collect_all`` does so until nothing is left.

May import: commit, context, upkeep.
"""
