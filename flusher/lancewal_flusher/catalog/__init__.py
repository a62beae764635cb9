"""Comparing a catalog with the folders of its tables.

``below`` lists the tables in a catalog's root folder.  ``proved`` says which entries and cuts contracts and snapshots
prove, and ``check`` compares them with those of a catalog.

May import: nothing of this package.
"""
