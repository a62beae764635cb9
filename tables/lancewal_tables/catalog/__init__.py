"""Tables in a catalog: add and remove entries, make tables by name, show them, and compare entries with folders.

``root`` makes the root of a catalog, and its schema in PostgreSQL.  ``registration`` adds a table that exists,
``making`` makes a table and adds it, and ``dropping`` drops a table and changes its entry.  ``cuts_of_table`` names the
kept cuts that would lack a table.  ``overview`` is what ``lancewal catalog list`` shows.  ``rebuild`` writes the
entries and kept cuts that the tables' folders prove.  ``namespace`` shows a catalog in PostgreSQL to clients of Lance
Namespace.

May import: define, status.
"""
