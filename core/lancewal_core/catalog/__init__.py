"""Catalogs: tables by name, and cuts, which are states of several tables.

``table_name`` has the form of names, and the folder that a name gives a table.  ``entry`` is what a catalog holds of a
table, ``cut`` what it holds of a cut, and what a snapshot tells of its cut.  ``catalog`` is the interface that each
kind of catalog implements.  ``named`` finds the address of a table that a text names.  ``directory`` keeps a catalog in
the object store, ``postgres_catalog`` in PostgreSQL by the statements of ``postgres``, with a ``report`` of each table.
``rest_catalog`` is a server of Lance Namespace.  ``opened`` opens the catalog of the settings.

Nothing that the protocol promises lies in a catalog.  Contracts, pages, logs and merge records stay in each table's
folder.  A table is opened by its address without a catalog.

May import: catalog.postgres, errors, names, process, settings, store, table.
"""
