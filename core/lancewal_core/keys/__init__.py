"""The key index: where in the table the rows of a key lie.

``code`` turns keys into numbers, ``run`` holds them sorted, in ``parts``, ``catalog`` names the runs in force,
``index`` asks them all by ``sorted_search``; ``scan`` looks up what no run covers, ``live`` asks both for rows that
live; ``origin`` says through which region a key came, ``conflicts`` what waits where that were two.

May import: errors, names, process, region, rows, store, table.
"""
