"""From the bytes of records to columns, operations and rejections.  No Kafka client, no store.

``operations`` reads the header that names a record's operation, and ``headers`` does so for many records at once.
``weight`` computes how much memory a record takes.  ``decoder`` does everything that is the same for every format,
and passes values to the ``value_decoder`` of the contract (``json``, ``connect``, or ``framed`` with ``avro``).
``naming`` says by which names records may call columns, and which columns they may leave out.  ``record_keys`` reads
the Kafka keys of records, and compares them with rows.  ``metadata`` fills columns from Kafka's metadata of a record.
``part`` joins decoded parts into a batch.  ``outcomes`` has the results: rows and rejections.  A further format
implements ``value_decoder``.

May import: nothing of this package.
"""
