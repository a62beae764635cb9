"""The commands ``lancewal ingest``, ``offset``, ``schema`` and ``dead-letter``, each in its own module.

``topic_sample`` has what ``lancewal config check`` says about the newest records of a topic.

May import: append, context, decode, decode.json, glibc_heap, kafka, operator, registry, service.
"""
