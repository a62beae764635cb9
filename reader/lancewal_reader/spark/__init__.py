"""The Spark data source.

``source`` pins a plan from ``options``, ``types`` translates types, and ``task`` reads on the executors, whose
processes share the keys of unmerged rows (``shared_keys``).  ``plain_errors`` shows an error in one line.  Programs
call ``session_reads``; ``installed`` checks that PySpark and Java are there.  ``feeds`` has changes and streams, whose
options are in ``feed_options``.

May import: changes, cuts, forms, plan, point, reading, unmerged.
"""
