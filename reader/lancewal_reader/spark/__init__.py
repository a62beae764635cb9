"""The Spark data source.

``source`` pins a plan from ``options``, ``types`` and ``filters`` translate, ``task`` reads on the executors.

May import: filter, left_out, narrow_times, plan, point, reads, scan, unmerged.
"""
