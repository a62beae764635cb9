"""Kafka as ingest uses it.

``source`` is the interface, ``consumer`` the member of the group behind it, and ``statistics`` what its client tells
of itself.  ``dead_letters`` sends bad records away, ``letter_reader`` reads these again, and ``letter_groups`` counts
them.

May import: decode, event_table.
"""
