"""Kafka as ingest uses it.

``source`` is the interface of a consumer, and ``consumer`` implements it as a member of the group.  ``consumer_group``
says which group takes a table's records.  ``statistics`` reads the figures that Kafka's client reports.
``dead_letters`` sends bad records to the dead-letter topic, ``letter_reader`` reads that topic, and ``letter_groups``
counts its letters.

May import: decode, event_table.
"""
