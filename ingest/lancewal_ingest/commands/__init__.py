"""The commands ``lancewal ingest``, ``lancewal offset`` and ``lancewal dead-letter``, a module each.

May import: append, context, glibc_heap, kafka, operator, service.
"""
