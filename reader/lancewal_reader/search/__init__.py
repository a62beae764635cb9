"""Nearest or best rows of one state of the table: merged and unmerged rows under one ranking.

``options`` has the arguments of a search, ``found`` its result.  ``sides`` keeps the unmerged rows, and the merged
rows that they hide, from one search to the next.  ``vectors`` searches by vectors.  ``merged`` searches the merged
table under a mask and keeps its rows without an index.  ``distance`` (floats) and ``bits`` compare rows one by one.
``text`` searches by words (``texts``).  ``text_columns`` resolves a query for a table, and ``ranked`` orders rows of
both sides by their scores.  ``hybrid`` is the entry point: it runs one of both searches, or both and fuses the
rankings.

May import: forms, plan, point, reading, search.texts, unmerged.
"""
