"""``lancewal verify``: is the table what its records make of it?

Each module is one part of the answer: which records each source has (``topic_records``, ``wal_records``), what they make of a
key (``key_fold``), what is compared with what (``judge``), and what is said about it (``report``).
"""
