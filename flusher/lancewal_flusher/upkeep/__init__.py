"""Upkeep: work on the merged table that keeps it fast, and hides expired rows.  Only ``expiry`` changes what a read
returns.

``compaction_plan`` and ``compaction`` rewrite fragments, and ``compact_all`` repeats this until nothing is left.
``index_plan`` and ``indexes`` extend secondary indexes, and ``index_doubt`` says which to rebuild.  ``key_runs``
maintains the key index, with ``adopted_keys`` and ``key_tiers``.  ``widening`` gives columns wider types.

May import: commit, context, event_table, origins, tasks.
"""
