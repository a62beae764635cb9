"""The JSON decoder: columnar where that is safe, value by value where it is not.

``decoder`` chooses.  ``hazards`` keeps values from ``columnar`` that Arrow must not be given, and ``transport``
converts its columns to the table's types.  ``reference`` defines what is right, by ``strict`` JSON and the ``cells``
of each type.  ``types``, ``presence`` and ``growth`` are shared.

May import: decode.
"""
