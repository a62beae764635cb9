"""The commands of the flusher's turns, each in its own module.

``runner_option`` has the options of commands that can run on Spark.  ``submit`` holds the scripts for
``spark-submit``.

May import: commit, context, garbage, merge, open, service, tasks, upkeep.
"""
