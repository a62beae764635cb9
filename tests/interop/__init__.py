"""``python3 dev.py interop``: readers of others on tables made here.

``made`` makes the tables and says what is in them; ``by_pylance``, ``by_duckdb`` and ``by_lance_spark`` are programs that
answer questions in environments without lancewal; ``page`` shows what they found.
"""
