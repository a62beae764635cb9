"""Ingest: from Kafka to durable rows, and to flushes.

Data flows through ``kafka`` (consume), ``decode`` (bytes to rows), ``append`` (rows to a durable segment) and
``regions`` (MemTables: opened, sealed, flushed).  ``envelopes`` are what connectors put around rows.  ``registry``
finds the schemas that records name.  ``retention``
watches what Kafka deletes, ``service`` runs the loop, and ``commands`` are the other entry points.  ``formats`` knows
the decoders, and ``context`` is the open table with what ingest needs besides.  ``observer`` is the interface through
which the loop reports events to logs and metrics.  ``event_table`` lists the log events.  ``glibc_heap`` keeps the C
library to one heap.
"""
