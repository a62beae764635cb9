"""Envelopes of connectors: a value names its operation, and has the row within it.

``envelope`` says which envelope a contract has.  ``debezium_json`` finds operation and row in JSON, and
``json_events`` decodes many such values, also those of Kafka Connect's JSON with schemas.  ``avro_opening`` and
``avro_events`` do so in Avro.  ``event_rows`` finishes the rows of both: it fills columns from the envelope, and
``unavailable`` leaves values alone that the connector could not read.  ``tails`` compares the ends of events that are
alike, ``avro_tails`` and ``json_tails`` say which are.  ``unwrapped`` decodes rows that a connector has taken out of
the envelope.  ``connector_modes`` names settings of the connector in messages.

May import: decode, decode.json, decode.avro, decode.connect, decode.framed.
"""
