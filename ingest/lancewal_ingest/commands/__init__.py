"""The commands ``lancewal ingest``, ``lancewal offset`` and ``lancewal dead-letter``, a module each.

May import: append, context, kafka, operator, service.
"""
