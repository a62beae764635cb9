"""``python3 dev.py check-spark``: the same reads, and a load, on several PySparks, each in three ways, against DuckDB.

``reads`` what is read and what DuckDB says of it, in both processes; ``loaded`` what is loaded; ``environments`` a PySpark of
its own; ``sessions`` the three ways; ``child`` the program that reads, in that PySpark; ``page`` what the runs came to.
"""
