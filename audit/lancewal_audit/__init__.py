"""Commands for an operator in doubt: compare a table with its topic, and repair what is damaged.

``verify`` compares, ``repair`` mends, ``commands`` are the doors.  The package sees more than one part of lancewal at
once: the decoder of ingest, the clients of Kafka, the reads of the reader.
"""
