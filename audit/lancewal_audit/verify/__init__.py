"""``lancewal verify``: is the table what its records make of it?

``verification`` runs it: a ``scope`` says what it is about, ``records`` what each source has.  These are
``evidence``, kept in ``shares`` of the keys.  ``key_fold`` says what they make of a key, ``compare`` sets it beside
the rows, ``hidden_rows`` looks below deletion vectors.  ``index_check`` asks an ``index_sample`` through indexes
(``index_answers``, ``index_vectors``).  ``summary`` makes the ``report``.

May import: verify.records, verify.shares.
"""
