"""Proposals: columns for the schema of a topic's values, and the table that fits the topic of a connector.

``schema_fields`` finds the fields of a schema, and ``settings_text`` writes columns and keys as text.  The rest is about a
connector.  ``sampled_records`` reads the newest records of its topic, and ``connector_topic`` finds the table.
``connector_record`` says what each record is, and ``connector_schema`` what its schema says.  ``sampled_columns`` finds types
for values without a schema, and a comment for each column.  ``connector_advice`` has the sentences about the connector.

May import: append, decode, decode.avro, decode.connect, decode.framed, decode.framed.protobuf, decode.json, envelopes,
formats, registry.
"""
