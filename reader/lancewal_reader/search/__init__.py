"""Nearest or best rows of one state of the table, merged and unmerged ones under one ranking.

``options`` is what a search takes, ``text_query`` what it may ask of texts, ``found`` what it gives.  ``sides`` are the merged
rows that unmerged ones hide, and these, kept from one search to the next.

``vectors`` is the search by vectors: the ``merged`` side under a mask, of which rows without an index are kept, the unmerged
rows by ``distance``, or of very many those that ``private_views`` choose, and one ranking of both.  ``text`` is that by words:
``words`` are Lance's, ``near_words`` misspelt ones, ``bm25`` scores them, ``indexed_texts`` asks a full text index, and
``bounds`` says how high rows may score that it did not show.  ``hybrid`` is what is called: one of them, or both and one
ranking of the two.

May import: filter, plan, point, reads, rows, scan, unmerged.
"""
