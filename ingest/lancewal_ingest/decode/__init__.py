"""From the bytes of records to columns, operations and rejections. No Kafka client, no store.

``operations`` reads the header that says what a record does, a decoder (``json``) makes a ``part`` of rows, ``weight``
says what they take in memory, ``outcomes`` is what comes out.

May import: nothing of this package.
"""
