"""Search the rows of one state of the table by vectors or words, merged and unmerged rows in one ranking.

``options`` has the arguments of a search, ``found`` its result.  ``sides`` caches the unmerged rows, and the
addresses of the merged rows that they hide.  ``vectors`` searches by vectors.  ``merged`` searches the merged table
under a mask and keeps its rows without an index.  ``distance`` (floats) and ``bits`` compare rows one by one.
``text`` searches by words (``texts``).  ``text_columns`` resolves a query for a table, and ``ranked`` orders rows of
both sides by their scores.  ``hybrid`` is the entry point: it runs one of both searches, or both and fuses the
rankings.

May import: forms, plan, point, reading, search.texts, unmerged.
"""
