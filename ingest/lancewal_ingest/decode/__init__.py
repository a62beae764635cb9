"""From the bytes of records to columns, operations and rejections. No Kafka client, no store.

``operations`` reads the header that says what a record does, and ``weight`` says how much memory it takes.
``decoder`` does what is the same for every format, and gives values to the ``value_decoder`` of the contract
(``json``).  ``part`` makes a batch of the result, and ``outcomes`` is what comes out.  A further format implements
``value_decoder``.

May import: nothing of this package.
"""
