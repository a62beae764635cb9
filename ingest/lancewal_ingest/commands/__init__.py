"""The commands ``lancewal ingest``, ``offset``, ``schema`` and ``dead-letter``, each in its own module.

``topic_sample`` has what ``lancewal config check`` says about the newest records of a topic, and ``proposed_settings`` what
``lancewal config init`` proposes.  ``schema_fields`` finds fields in schemas, and ``settings_text`` writes columns as text.
``connector_topic`` finds the table that fits a topic of a connector.  ``connector_schema`` looks at schemas of records,
``connector_record`` at records, ``sampled_columns`` at values without a schema, and ``connector_advice`` at settings.

May import: append, context, decode, decode.avro, decode.connect, decode.framed, decode.framed.protobuf, decode.json,
envelopes, formats, glibc_heap, kafka, operator, registry, service.
"""
