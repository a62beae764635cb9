"""Envelopes of connectors.  A value in an envelope is called an *event*: it names its operation, and holds the row.

``envelope`` has a contract's rules about envelopes.  ``debezium_json`` reads the operation and the row of one JSON
event.  ``json_events`` decodes many JSON events, also those of Kafka Connect's JSON with schemas.  ``avro_opening``
finds operations and rows in Avro events, and ``avro_events`` decodes them.  ``event_rows`` completes the rows of both
formats: it fills columns from the envelope.  ``unavailable`` finds values that the connector could not read, so that
their cells keep the former values.  ``tails`` recognises many events at once by the bytes after the row, of which
``avro_tails`` and ``json_tails`` make patterns.  ``unwrapped`` decodes rows that a connector has taken out of the
envelope.  ``connector_modes`` says in messages which setting of the connector to change.

May import: decode, decode.json, decode.avro, decode.connect, decode.framed.
"""
