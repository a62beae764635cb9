"""A read, from its plan to its rows.

``reads`` plans and runs reads, and plans again if what a plan names has vanished.  ``result_columns`` says which
columns a result has, and ``shown_version`` gives a table version these columns.  ``scan`` puts merged and unmerged
rows together under a ``filter``, and ``lookup`` finds the rows of given keys in both.  ``rows`` has ``Rows``, the
result that the Python API returns.

May import: forms, forms.conditions, plan, point, unmerged.
"""
