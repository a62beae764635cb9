"""Kafka as every part asks it; nothing in here knows the store or the table.

``clients`` says what clients are made of, ``errors`` what theirs mean.  ``topic`` asks brokers about a topic and its
group, ``retention`` what it keeps, ``unpacking`` what a batch of it may become.  ``records`` is what was consumed,
``reread`` consumes it once more, outside the group.  ``group_member`` is the name by which a member is known, and
needs no client.
"""
