"""Nearest or best rows of one state of the table, merged and unmerged ones under one ranking.

``options`` is what a search takes, ``found`` what it gives.  ``sides`` are the merged rows that unmerged ones hide, and
these, kept from one search to the next.  ``vectors`` is the search by vectors: the ``merged`` side under a mask, of which
rows without an index are kept, the unmerged rows by ``distance`` (of floats) or ``bits``.  ``text`` is that by words
(``texts``): ``text_columns`` says what a query means for a table, and rows of both sides are ``ranked`` by their scores.
``hybrid`` is what is called: one of them, or both and one ranking of the two.

May import: forms, plan, point, reading, search.texts, unmerged.
"""
