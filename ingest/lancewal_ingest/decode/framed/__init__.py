"""Values that name the schema they were written under, as a schema registry's serializers write them.

``frames`` reads which schema values name.  ``payloads`` is the interface of a format here.  ``decoder`` decodes values by
the stored schemas that they name.  ``json_schema`` is JSON after a frame.

May import: decode, decode.json.
"""
