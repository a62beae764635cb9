"""The commands of the flusher's turns, a module each.

``runner_option`` is what those on Spark share; ``submit`` holds the scripts for
``spark-submit``.

May import: commit, garbage, merge, open, service, tasks, upkeep.
"""
