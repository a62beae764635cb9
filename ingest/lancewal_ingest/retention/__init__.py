"""Records that Kafka deletes before they are durable here, and how that is noticed in time.

``topic_watch`` asks the broker, ``horizon`` says how long there is, ``tombstones`` and ``long_pause`` whether deletes
may be gone unread.

May import: context, kafka.
"""
