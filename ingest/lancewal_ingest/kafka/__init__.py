"""Kafka as ingest uses it.

``source`` is the interface, ``consumer`` the member of the group behind it, ``statistics`` what its client tells of
itself, ``dead_letters`` where bad records go; ``letter_reader`` reads these again, ``letter_groups`` counts them.

May import: decode, event_table.
"""
