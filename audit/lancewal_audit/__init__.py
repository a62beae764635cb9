"""Commands for an operator in doubt: compare a table with its topic, and repair damage.

``verify`` compares, ``repair`` repairs, and ``commands`` are the entry points.  ``taken_versions`` lets both read the
records of a lost segment by the same versions of the contract.  The package uses several parts of lancewal at once: the
decoder of ingest, the clients of Kafka, the reads of the reader.
"""
