"""The flusher service.

``service`` runs a ``process``, which has all that its tables share.  A ``table`` runs ``turns``, work that is
repeated; settings give their ``limits``.  A ``round`` merges.  After it come expiry, compaction and indexes
(``upkeep``); garbage collection runs at the same time.  ``backlog`` finds the generations that wait, and since when.
``metrics`` (declared in ``metric_table``) shows the backlog and the results of turns.  ``reports`` sends a part of
the backlog to a catalog.  ``status`` shows where records stop.  ``visibility`` measures end to end when rows are
seen, by positions of strong reads.

May import: catalog, commit, context, cuts, event_table, garbage, merge, open, upkeep.
"""
