"""The Spark data source.

``source`` pins a plan from ``options``, ``types`` and ``filters`` translate, ``task`` reads on the executors, whose processes
share the keys of unmerged rows (``shared_keys``). ``plain_errors`` says what went wrong in one line, ``worker`` which process
this is. ``session_reads`` is what programs call.

May import: filter, forms, left_out, lookup, plan, point, reads, scan, unmerged.
"""
