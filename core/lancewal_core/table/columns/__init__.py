"""Columns that change while all services work (docs/protocol.md, "Columns that change").

``changes`` name what is to change, and ``adopt`` finds out what other programs have changed.  ``next_contract`` makes the
next version of the contract for them, with ``defaults``.  ``versions`` makes the commits that bring a version of the table
to a contract.  ``steps`` takes table and contract there.  ``restored`` brings a version that a user has restored.

May import: errors, names, process, rows, settings, store, table.
"""
