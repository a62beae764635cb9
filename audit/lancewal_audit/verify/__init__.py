"""``lancewal verify``: compare a table with the state that its records give.

``verification`` runs it: a ``scope`` says what is compared, ``records`` what each source has.  These are
``evidence``, kept in ``shares`` of the keys.  ``key_fold`` folds the records of a key, ``compare`` compares the
result with the rows, and ``hidden_rows`` looks below deletion vectors.  ``index_check`` asks an ``index_sample``
through indexes (``index_answers``, ``index_vectors``).  ``summary`` makes the ``report``.

May import: verify.records, verify.shares.
"""
