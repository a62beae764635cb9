"""Envelopes of connectors: a value names its operation, and has the row within it.

``envelope`` says which envelope a contract has.  ``debezium_json`` finds operation and row in JSON, and ``json_events``
decodes many such values, also those of Kafka Connect's JSON with schemas.  ``avro_events`` does so in Avro.  ``unwrapped``
decodes rows that a connector has taken out of the envelope.  ``unavailable`` leaves values alone that the connector could
not read.  ``event_columns`` fills columns from the envelope around a row.  ``tails`` compares the ends of events that are
alike, ``avro_tails`` and ``json_tails`` say which are.  ``connector_modes`` names settings of the connector in messages.

May import: decode, decode.json, decode.avro, decode.connect, decode.framed.
"""
