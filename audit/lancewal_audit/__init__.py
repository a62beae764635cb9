"""What an operator uses when something is in doubt: compare a table with its topic, and repair what is damaged.

It sees more than one part of lancewal at once: the decoder of ingest, the merges of the flusher, the reads of the reader.
"""
