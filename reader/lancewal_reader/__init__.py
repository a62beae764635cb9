"""Reading lancewal tables: table, flushes and WAL tail merged at read time, straight from object storage.

``table`` is what a program opens; it makes ``reads``, given as ``rows``, of now or of a ``point``. A ``plan`` says what is
read, ``unmerged`` folds what is not merged, ``scan`` puts both together under a ``filter``, ``lookup``
finds the rows of given keys in both, ``search`` the nearest or best ones, and ``left_out`` says what is not in it. ``spark``
and ``commands`` are the other doors; ``event_table`` is what is logged; ``forms`` are those of values and rows;
``python_collector`` looks for cycles rarely while a read makes many objects.
"""
