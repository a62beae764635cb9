"""The commands ``lancewal ingest`` and ``lancewal offsets``, a module each.

May import: append, context, kafka, operator, service.
"""
