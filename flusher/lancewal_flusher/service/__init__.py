"""The flusher service.

``service`` runs a ``process``, which has once what its tables share.  A ``table`` takes ``turns``, as the settings say
(``limits``).  A ``round`` merges; after it come expiry, compaction and indexes (``upkeep``), and beside it garbage
collection.  ``backlog`` and ``metrics`` (declared in ``metric_table``) show what waits, since when, and what happens.
``status`` shows where records stop.  ``visibility`` measures end to end when rows are seen, by the
``visible_positions`` of strong reads.

May import: commit, context, event_table, garbage, merge, open, upkeep.
"""
