"""The flusher service.

``service`` builds what takes turns (``turns``): a ``round`` of merging, behind it expiry, compaction and indexes
(``upkeep``), beside it garbage collection, as the settings say (``limits``).  ``backlog`` and ``metrics`` (declared in
``metric_table``) show what waits, since when, and what happens, ``status`` where records stop, ``probes`` what is not as it
should be; ``merged_positions`` sees what must never happen.  ``visibility`` measures end to end when rows are seen, by the
``visible_positions`` of strong reads.

May import: commit, context, event_table, garbage, merge, open, upkeep.
"""
