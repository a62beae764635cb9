"""The commands ``lancewal ingest``, ``lancewal offset`` and ``lancewal dead-letter``, each in its own module.

May import: append, context, glibc_heap, kafka, operator, service.
"""
