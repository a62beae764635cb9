"""The commands ``lancewal ingest`` and ``lancewal offset``, a module each.

May import: append, context, kafka, operator, service.
"""
