"""The Avro decoder: payloads of one writer schema, columnar where that decides, datum by datum where it does not.

``schema`` parses a schema.  ``mapping`` says how its fields fill the columns of a contract, as a tree of ``cells``.
``column_of`` names a column type for a field without a column.  Two readers follow the tree of cells.  ``columnar``
reads a field of all datums at a time.  ``strict`` reads one datum, and defines the right result.  ``decoder`` has
both readers, and ``TypedPayloads`` (``decode.framed.typed``) chooses one.  ``keys`` is the format of record keys in
Avro.

May import: decode, decode.framed, decode.json.
"""
