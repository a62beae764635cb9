"""Values that name the schema they were written under, as a schema registry's serializers write them.

``frames`` reads which schema values name.  ``payloads`` is the interface of a format here.  ``decoder`` decodes
values by the stored schemas that they name, and ``kept`` caches decoders.  ``json_schema`` is JSON after a frame, and
``json_schema_columns`` has column types for a JSON Schema's properties.

Formats with schemas that have fields share the rest.  ``mapping`` finds the column of a field, and ``new_columns``
limits the columns of new fields.  ``cells`` says how values fill columns.  ``typed`` decodes payloads by a columnar
reader, with ``cursors`` and ``arrays``, and a strict one, with ``assembly``.  ``protobuf`` is the room of such a
format.  Avro's is beside this room.

May import: decode, decode.json.
"""
