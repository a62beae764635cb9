"""The only place that knows how Lance stores a table.

``table`` implements ``StoredTable``, and ``pinned`` implements ``PinnedTable``, one version.  ``row_mask`` leaves
rows out of scans.  ``deletions`` and ``columns`` write files that Lance's own calls write too slowly or not at all.
``fields`` makes schemas that Lance's own calls do not make.  ``row_files`` writes files of new rows, ``rewrite``
rewrites fragments, and ``index_build`` builds secondary indexes.  ``text_index`` reads the documents of full text
indexes, and ``word_automaton`` their words.  ``branches`` makes and drops branches.  ``base_paths`` checks in which
folders a table's files lie.  ``errors`` translates Lance's errors.

May import: errors, names, names.proto, process, rows, store, table.
"""
