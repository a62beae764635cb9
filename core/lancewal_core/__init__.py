"""The protocol core of lancewal: no Kafka client and no Spark in here.

From the bottom up: ``errors``, ``names`` (of stored objects), ``process`` (clock, tasks,
signals), ``rows`` (what a row is), ``store`` (objects), ``table`` (the Lance table and its contract), ``region`` and ``wal``
(what is durable and not merged), ``keys`` (where the rows of a key lie), ``settings``, ``status`` (where records stop),
``open`` (a table, by its address or by settings), ``cli``.  ``proto`` holds the generated messages of
stored formats.
"""
