"""The key index, which says where in the table the rows of a key lie.

``code`` turns keys into numbers.  ``run`` holds them sorted, in ``parts``, and ``catalog`` names the runs in force.
``index`` looks keys up in all runs, by ``sorted_search``.  ``scan`` looks for keys in fragments that no run covers,
and ``live`` combines both for live rows.  ``origin`` says through which region a key came.  ``conflicts`` has keys
that came through two regions, and their waiting operations.  ``far_rows`` names, by their keys, rows whose vectors an
index cannot take.

May import: errors, names, process, region, rows, store, table.
"""
