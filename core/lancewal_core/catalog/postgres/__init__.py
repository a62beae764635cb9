"""Statements and schema of a catalog in PostgreSQL.  Only this room imports psycopg, of the extra `postgres`.

``parameters`` makes of an address what a connection is opened with.  ``connections`` runs statements within time limits,
and translates PostgreSQL's errors.  ``migrate`` makes the schema from the numbered files in ``migrations``.  ``rows`` has
documents under a name, and swaps them.

May import: errors, process, settings.
"""
