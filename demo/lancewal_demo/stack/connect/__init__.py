"""Kafka Connect on 127.0.0.1, for tests and to try it: its worker, Debezium for PostgreSQL, and Apicurio's converter.

They are fetched once, like Kafka's jars (``connect_jars``).
"""

from lancewal_demo.stack.connect.connect_worker import ConnectWorker

__all__ = ["ConnectWorker"]
