"""The only place that knows how Lance stores a table.

``table`` implements the protocol.  ``pinned`` is one version of it, whose scans a ``row_mask`` leaves rows out of.
``deletions`` and ``columns`` write files that Lance's own calls write too slowly or not at all.  ``fields`` makes
schemas that Lance's own calls do not make.  ``row_files`` writes files of new rows, ``rewrite`` rewrites fragments, and
``index_build`` builds secondary indexes.  ``text_index`` says what is in an index of texts, ``word_automaton`` its words.
``branches`` are made and dropped.  ``base_paths`` are folders beside the table's own.  ``errors`` says what Lance's errors
mean.

May import: errors, names, names.proto, process, rows, store, table.
"""
