"""The Protobuf decoder: payloads of one message of a writer schema, columnar where that decides, one by one where it
does not.

``proto_text`` parses the text of ``.proto`` files, and ``schema`` links files and finds the message.  ``mapping``
says how the message's fields fill the columns of a contract, as a tree of ``cells``.  ``column_of`` names a column
type for a field without a column.  Two readers follow the tree of cells.  ``columnar`` reads a field of all payloads
at a time.  ``strict`` reads one payload, and defines the right result.  ``decoder`` has both readers, and
``TypedPayloads`` (``decode.framed.typed``) chooses one.

May import: decode, decode.framed, decode.json.
"""
