"""The change feed: what changed between two states of the table.

``side`` is an open end of a feed.  ``between`` finds the merged rows that two versions do not share.  ``pairs`` has rows
before and after a change, and makes the rows of a feed of them.  ``replay`` applies records to rows one after the other.

May import: plan, point, reading, unmerged.
"""
