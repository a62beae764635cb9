"""The protocol core of lancewal.  Core imports no Kafka client and no Spark.

From the bottom up: ``errors``, ``names`` (of stored objects), ``process`` (clock, tasks, signals), ``rows`` (what a
row is) and ``store`` (objects).  ``record_keys`` says where a record belongs.  ``table`` is the Lance table and its
contract.  ``region`` and ``wal`` hold what is durable and not merged.  ``keys`` says where the rows of a key lie.
Above these are ``settings``, ``catalog`` (tables by name), ``open`` (a table, by its address or by settings) and ``cli``.
"""
