"""Access to Kafka for every part.  Nothing in here opens a store or a table.

``clients`` has the properties of clients, and ``errors`` turns their errors into those of lancewal.  ``topic`` asks the
brokers about a topic and its consumer group, ``retention`` about the records that Kafka keeps.  ``unpacking`` bounds the
unpacked size of a batch.  ``records`` are consumed messages, ``headers`` those of many of them, and ``reread`` reads
records again, outside the group.
``group_member`` is the client id of a group's member, and needs no client.
"""
