"""Decisions of a person about offsets that stopped a partition.

``accept_loss`` leads a partition past offsets that Kafka deleted, and ``reject`` past bad records.  Both write an
``entry`` in the place of ingest.  ``accept_schema`` takes another schema for a name that records use.

May import: append, context, decode, kafka, regions, registry, retention.
"""
