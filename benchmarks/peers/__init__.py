"""lancewal beside other tables with keyed upserts: ``python3 dev.py bench-peers``.

Each peer is one small module, and runs in a process and a virtual environment of its own (``fetch``, ``child``); what all
of them can do is ``peer.Peer``.  Rows are the same for lancewal and the peers, and each table is compared with the model.
"""
