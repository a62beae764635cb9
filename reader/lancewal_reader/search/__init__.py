"""Nearest rows of one state of the table, merged and unmerged ones under one ranking.

``options`` is what a search takes, ``found`` what it gives.  ``vectors`` is the search: the ``merged`` side under a mask, the
unmerged rows by ``distance``, and one ranking of both.

May import: plan, point, reads, rows, scan, unmerged.
"""
