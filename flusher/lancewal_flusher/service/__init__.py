"""The flusher service.

``service`` runs a ``process``, which holds what its tables share.  A ``table`` takes ``turns``, as the settings say
(``limits``).  A ``round`` merges.  After it come expiry, compaction and indexes (``upkeep``); garbage collection runs
at the same time.  ``backlog`` and ``metrics`` (declared in ``metric_table``) show what waits, since when, and what
happens, and ``reports`` sends a part of it to a catalog.  ``status`` shows where records stop.  ``visibility`` measures
end to end when rows are seen, by positions of strong reads.

May import: catalog, commit, context, cuts, event_table, garbage, merge, open, upkeep.
"""
