"""Notice in time that Kafka deletes records before they are durable here.

``topic_watch`` asks the broker, and ``horizon`` computes the time left.  ``tombstones`` finds out whether deletes may be
gone unread.

May import: kafka.
"""
