"""The keys that are compared, share by share.

``sample`` chooses them, ``by_share`` gathers their rows and records, ``on_disk`` keeps these.

May import: verify.records.
"""
