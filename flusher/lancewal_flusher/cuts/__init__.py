"""Positions at which several tables are cut, for kept and for moving cuts.

``positions`` opens the tables and asks for their positions in one round, and ``ends`` asks Kafka's brokers.
``reached`` waits until they are durable in every table.  ``visible_positions`` follows
what strong reads see.  ``open_tables`` has the tables of a moving cut that are open, ``moving``
publishes the cut, and ``publish`` does so in threads, as the settings say.

May import: context, event_table, open.
"""
