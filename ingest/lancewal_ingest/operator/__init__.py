"""Decisions of a person about offsets: one entry in the place of records.

``accept_loss`` goes on after offsets that Kafka deleted, and ``reject`` passes bad records; both write an ``entry``.

May import: append, context, decode, kafka, regions, retention.
"""
