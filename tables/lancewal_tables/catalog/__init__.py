"""Tables in a catalog: add and remove entries, make tables by name, show them, and compare entries with folders.

``root`` makes the root of a catalog.  ``registration`` adds a table that exists, ``making`` one that it makes, and
``dropping`` drops one with its entry.  ``cuts_of_table`` names the kept cuts that would lack a table.  ``overview`` is what
``lancewal catalog list`` shows.  ``rebuild`` makes entries and cuts of the folders.  ``schema`` is that of a catalog in
PostgreSQL, and ``namespace`` shows such a catalog to clients of Lance Namespace.

May import: define, status.
"""
