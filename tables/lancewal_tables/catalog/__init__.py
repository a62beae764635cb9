"""Tables in a catalog: add and remove entries, make tables by name, show them, and compare entries with folders.

``root`` makes the root of a catalog, and its schema in PostgreSQL.  ``registration`` adds a table that exists, ``making``
one that it makes, and ``dropping`` drops one with its entry.  ``cuts_of_table`` names the kept cuts that would lack a
table.  ``overview`` is what ``lancewal catalog list`` shows.  ``rebuild`` makes entries and cuts of the folders.
``namespace`` shows a catalog in PostgreSQL to clients of Lance Namespace.

May import: define, status.
"""
