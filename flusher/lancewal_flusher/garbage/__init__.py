"""What nobody needs any more.

``kinds`` says what objects are, ``find`` what is free (``unnamed_data_files`` only counts, ``conflicts`` looks at
keys in conflict, ``flushes`` at flushes), ``collect`` removes it, and with it ``table_versions`` and named ``snapshots``
whose time is over, ``collect_all`` until nothing is left.

May import: commit, context, upkeep.
"""
