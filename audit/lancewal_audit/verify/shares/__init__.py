"""The keys that are compared, in shares that fit into memory.

``sample`` chooses the keys, ``by_share`` gathers their rows and records, and ``on_disk`` stores them.

May import: verify.records.
"""
