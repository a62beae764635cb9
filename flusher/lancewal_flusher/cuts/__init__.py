"""Positions at which several tables are cut, for kept and for moving cuts.

``positions`` asks for them in one round.  ``reached`` waits until they are durable in every table.  ``ends`` asks
Kafka's brokers.

May import: context.
"""
