"""Statements and schema of a catalog in PostgreSQL.  Only this room imports psycopg, of the extra `postgres`.

``parameters`` turns an address into the parameters of a connection.  ``connections`` runs statements within time
limits, and translates PostgreSQL's errors.  ``migrate`` makes the schema from the numbered files in ``migrations``.
``rows`` reads and swaps documents, each under a name.

May import: errors, process, settings.
"""
