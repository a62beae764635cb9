"""Decisions of a person about offsets that stopped a partition.

``accept_loss`` moves a partition's position past offsets that Kafka deleted, and ``reject`` past bad records.  Both
write an ``entry`` in the place of ingest.  ``accept_schema`` replaces the stored schema of an id that records name.

May import: append, context, decode, kafka, regions, registry, retention.
"""
