"""From the bytes of records to columns, operations and rejections. No Kafka client, no store.

``operations`` reads the header that says what a record does, ``weight`` what it takes in memory; ``decoder`` does what is
the same of every format, and gives values to the ``value_decoder`` of the contract (``json``); of
that ``part`` makes a batch, and ``outcomes`` is what comes out.  A format comes in through ``value_decoder``.

May import: nothing of this package.
"""
