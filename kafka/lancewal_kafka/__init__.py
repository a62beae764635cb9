"""Kafka as every part asks it; nothing in here knows the store or the table.

``clients`` makes clients and says what their errors mean; ``topic`` and ``retention`` are what brokers know of a topic;
``records`` is what was consumed, ``reread`` consumes it once more, outside the group; ``group_member`` is the name by
which a member is known.
"""
