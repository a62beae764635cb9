"""Values that name the schema they were written under, as a schema registry's serializers write them.

``frames`` reads which schema values name.  ``payloads`` is the interface of a format here.  ``decoder`` decodes
values by the stored schemas that they name, and ``kept`` limits what stays in memory of schemas.  ``json_schema`` is
JSON after a frame, and ``json_schema_columns`` has column types for the properties of such a schema.

Formats with schemas that have fields share the rest.  ``mapping`` finds the column of a field, and ``new_columns``
says what columns of new fields may be.  ``cells`` says how values fill columns, with bounds of their memory: the
cells that Avro and Protobuf share.  ``typed`` decodes payloads by a columnar and a strict reader.  The columnar
reader uses ``cursors`` and ``arrays``, and the strict reader uses ``assembly``.  ``protobuf`` is the room of such a
format.  Avro's is beside this room.

May import: decode, decode.json.
"""
