"""``lancewal verify``: compare a table with the state that its records give.

``verification`` runs the comparison.  ``scope`` says what is compared, ``records`` reads each source, and ``evidence``
chooses between them.  ``shares`` keeps records and rows on disk, by shares of the keys.  ``key_fold`` folds the records
of a key, ``compare`` compares the result with the rows, and ``hidden_rows`` looks for rows that deletion vectors hide.
``index_check`` looks up the keys of ``index_sample`` through indexes (``index_answers``, ``index_vectors``).
``summary`` makes the ``report``.

May import: verify.records, verify.shares.
"""
