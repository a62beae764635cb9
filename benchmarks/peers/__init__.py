"""Compare lancewal with other tables with keyed upserts: ``python3 dev.py bench-peers``.

Each peer is a small module, and runs in its own process and virtual environment (``fetch``, ``child``). ``peer.Peer``
says what all peers can do.  lancewal and the peers get the same rows, and each table is compared with the model.
"""
