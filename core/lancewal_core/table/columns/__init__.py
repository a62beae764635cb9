"""Columns that change while all services work (docs/protocol.md, "Columns that change").

``changes`` has the classes of changes, and ``adopt`` finds changes that other programs have made.  ``next_contract``
makes the contract's next version of changes, with ``defaults``.  ``versions`` makes the commits that change a table
version's columns to those of a contract.  ``steps`` makes a whole change, of table and contract.  ``restored``
changes the columns of a version that a user has restored to those of the newest contract.

May import: errors, names, process, rows, settings, store, table.
"""
