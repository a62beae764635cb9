"""The commands that read, a module each.

``options`` are those that they share, the table that these open, and what is said of every read on stderr.

May import: forms, point, table, unmerged.
"""
