"""The JSON decoder: columnar where that is safe, record by record where it is not.

``decoder`` chooses; ``hazards`` keeps from ``columnar`` what Arrow must not be given, ``transport`` lifts its columns
to the table's types; ``reference`` says what is right, by ``strict`` JSON and the ``cells`` of each type; ``types`` and
``presence`` are shared.

May import: decode.
"""
