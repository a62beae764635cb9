"""The JSON decoder: columnar where that is safe, value by value where it is not.

``decoder`` chooses.  ``hazards`` keeps from ``columnar`` what Arrow must not be given, ``transport`` lifts its columns
to the table's types.  ``reference`` says what is right, by ``strict`` JSON and the ``cells`` of each type.  ``types``,
``presence`` and ``growth`` are shared.

May import: decode.
"""
