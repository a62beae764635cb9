"""The commands ``lancewal ingest``, ``lancewal offset`` and ``lancewal dead-letter``, each in its own module.
``topic_sample`` has what ``lancewal config check`` says about the newest records of a topic.

May import: append, context, decode, glibc_heap, kafka, operator, service.
"""
