"""The commands that read, a module each.

``options`` has their common options, opens the table that these name, and reports on stderr what is said of every read.

May import: forms, point, table, unmerged.
"""
