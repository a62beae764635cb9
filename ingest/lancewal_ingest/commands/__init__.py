"""The commands ``lancewal ingest``, ``offset``, ``schema`` and ``dead-letter``, each in its own module.  ``operator``
carries out what a person decides about a stopped partition.

Two modules are called by commands of the core.  ``topic_sample`` has what ``lancewal config check`` says about the
newest records of a topic, and ``proposed_settings`` what ``lancewal config init`` proposes.  Both use ``proposals``.

May import: append, commands.operator, commands.proposals, context, decode, decode.json, glibc_heap, kafka, registry,
service.
"""
