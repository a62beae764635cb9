"""The change feed: what changed between two states of the table.

``feed`` plans a feed and reads it, and adds version, commit time and sequence to the rows.  ``follow`` makes one feed
after the other.  ``side`` is an open end of a feed, and ``net`` compares two of them.  ``between`` finds the merged
rows that two versions do not share.  ``cells`` says in which columns rows may differ, and ``trace`` follows rows
through compactions, in the versions that ``vanishings`` finds, in which fragments vanish.  ``all`` gives every
change: ``records`` reads those of the log, and ``replay`` applies them to rows one after the other.  ``meetings``
leaves out records of keys in conflict.  ``pairs`` has rows before and after a change, and makes the rows of a feed of
them.

May import: event_table, forms, plan, point, reading, unmerged.
"""
