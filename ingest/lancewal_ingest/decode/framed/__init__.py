"""Values that name the schema they were written under, as a schema registry's serializers write them.

``payloads`` is the interface of a format here: ``avro`` implements it.

May import: ``decode``'s modules, but not ``decoder``.
"""
