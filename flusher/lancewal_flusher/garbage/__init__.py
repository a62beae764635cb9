"""Garbage: objects, versions and snapshots that are no longer needed.

``kinds`` counts objects by kind, and names orphans.  ``find`` finds objects that may be deleted: ``conflicts`` finds
those with keys in conflict, ``flushes`` those of flushes.  ``unnamed_data_files`` only counts files.  ``collect``
deletes these objects, old ``table_versions``, and expired named ``snapshots``.  ``subscribed`` reads what
subscriptions hold.  ``collect_all`` repeats this until nothing is left.

May import: commit, context, upkeep.
"""
