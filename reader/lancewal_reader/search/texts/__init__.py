"""Texts as words, queries of them, and scores, for the search by words.

``text_query`` is what may be asked.  ``words`` are Lance's, of texts and of queries, and ``near_words`` misspelt
ones.  ``bm25`` scores rows.  ``indexed_texts`` asks a full text index, by a ``lance_query``.  ``bounds`` says how
high rows may score that the index did not show.

May import: nothing of this package.
"""
