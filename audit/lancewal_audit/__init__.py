"""Commands for an operator in doubt: compare a table with its topic, and repair damage.

``verify`` compares, ``repair`` repairs, and ``commands`` are the entry points.  ``taken_versions`` makes both decode
the records of a lost segment by the same contract versions.  The package uses several parts of lancewal at once: the
decoder of ingest, the clients of Kafka, the reads of the reader.
"""
