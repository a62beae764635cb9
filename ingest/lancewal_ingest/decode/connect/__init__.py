"""JSON of Kafka Connect with schemas: each value carries the schema that its payload was written under.

``envelope`` finds schema and payload in a value.  ``schema`` reads a schema as types of Avro, so Avro's mapping
says which field fills which column.  ``wire`` says how the JSON decoder reads payloads of a schema, and ``lift`` converts
what it read to the columns.  ``rows`` decodes the payloads of one schema, and ``decoder`` the values of many.

May import: decode, decode.json, decode.framed, decode.avro.
"""
