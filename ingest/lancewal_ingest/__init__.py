"""Ingest: from Kafka to durable rows, and to flushes.

Data flows through ``kafka`` (consume), ``decode`` (bytes to rows), ``append`` (rows to a durable segment), ``regions``
(MemTables: opened, sealed, flushed); ``retention`` watches what Kafka deletes, ``operator`` has what a person decides,
``service`` runs the loop, ``commands`` are the doors. ``formats`` knows the decoders, ``context`` carries everything with
an effect, ``observer`` what is reported, ``event_table`` what is logged; ``glibc_heap`` keeps its heap to one,
``python_collector`` lets Python's collector look at new objects less often.
"""
