"""``lancewal verify``: is the table what its records make of it?

Each module is one part of the answer: which records each source has (``records.topic``, ``records.wal``), what they make of a
key (``key_fold``), what is compared with what (``compare``), and what is said about it (``report``).

May import: verify.records, verify.shares.
"""
