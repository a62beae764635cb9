"""The commands of tables, of the flusher's turns, and ``lancewal status``, a module each.

``contract_text`` shows contracts, ``runner_option`` is what those on Spark share; ``submit`` holds the scripts for
``spark-submit``.

May import: commit, define, event_table, garbage, load, merge, open, service,
snapshots, status, tasks, upkeep.
"""
