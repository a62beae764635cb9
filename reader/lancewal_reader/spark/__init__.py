"""The Spark data source.

``source`` pins a plan from ``options``, ``types`` and ``filters`` translate, ``task`` reads on the executors.

May import: filter, forms, left_out, plan, point, portions, reads, scan, unmerged.
"""
