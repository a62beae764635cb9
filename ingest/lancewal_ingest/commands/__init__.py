"""The commands ``lancewal ingest`` and ``lancewal offsets``.

May import: append, context, kafka, operator, service.
"""
