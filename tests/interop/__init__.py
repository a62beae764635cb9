"""``python3 dev.py interop``: readers without lancewal on tables that are made here.

``made`` makes the tables and says which rows they have.  ``by_pylance``, ``by_duckdb`` and ``by_lance_spark`` are
programs that answer questions in environments without lancewal.  ``page`` writes the page of results.
"""
