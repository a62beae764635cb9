"""What keeps a merged table fast: none of it changes what a read returns, but ``expiry``.

``compaction_plan`` and ``compaction`` write fragments anew (``compact_all`` to the end), ``index_plan`` and ``indexes``
extend secondary indexes (``index_doubt``: which to build anew), ``key_runs`` keeps the key index (``adopted_keys``,
``key_tiers``).

May import: commit, context, event_table, origins, tasks.
"""
