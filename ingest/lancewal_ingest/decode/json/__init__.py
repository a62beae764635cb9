"""The JSON decoder: columnar where that is safe, value by value where it is not.

``decoder`` chooses the path.  ``columnar`` is the fast path through Arrow's JSON reader.  ``hazards`` finds values
that Arrow must not be given, and ``transport`` converts Arrow's columns to the table's types.  ``reference`` is the
slow path, and defines the right result: ``strict`` JSON, and the rules of ``cells`` for each type.  ``types`` limits
how deep types nest, ``presence`` makes the bitmaps of patches, and ``growth`` bounds the memory of rows.
``other_names`` reads values with former, dropped or unknown names, and ``forms`` reads columns in lenient forms.
``defaults`` fills columns that upserts leave out.  ``foreign`` recognises values of other formats.

May import: decode.
"""
