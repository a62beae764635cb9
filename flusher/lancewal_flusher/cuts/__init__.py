"""Positions up to which cuts contain records of their tables, for kept and for moving cuts.

``positions`` opens the tables and asks for the positions of all at once, and ``ends`` asks Kafka's brokers for them.
``reached`` waits until the positions are durable in every table.  ``visible_positions`` tells cheaply and repeatedly
up to which positions a strong read sees.  ``open_tables`` keeps the tables of a moving cut open.  ``moving``
publishes the cut, and ``publish`` runs a thread for each moving cut in the settings.

May import: context, event_table, open.
"""
