"""``python3 dev.py check-spark``: the same reads, and a load, on several PySparks, each in three ways, against DuckDB; and the
recipes for histories.

``reads`` what is read and what DuckDB says of it, in both processes; ``loaded`` what is loaded; ``environments`` a PySpark of
its own; ``sessions`` the three ways; ``child`` the program that reads, in that PySpark; ``history`` and ``history_child``
the recipes of docs/how-to/keep-history.md; ``page`` what the runs came to.
"""
