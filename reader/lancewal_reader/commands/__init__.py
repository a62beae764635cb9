"""The commands that read, each in its own module, and those of a ``subscription``.

``options`` has the options that these commands share.  It opens the table that they name, and prints the receipt and
what was left out on stderr.

May import: cuts, forms, point, subscriptions, table, unmerged.
"""
