"""Queries, words and scores of the search by words.

``text_query`` has the queries that may be asked.  ``words`` divides texts and queries into words as Lance does, and
``near_words`` finds misspelt ones.  ``bm25`` scores rows.  ``indexed_texts`` asks a full text index, by a
``lance_query``.  ``bounds`` says how high rows may score that the index did not show.

May import: nothing of this package.
"""
