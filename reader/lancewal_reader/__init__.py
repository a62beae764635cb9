"""Reading lancewal tables: table, flushes and WAL tail merged at read time, straight from object storage.

``table`` is what a program opens; it reads now or at a ``point``.  A ``plan`` says what is read, ``unmerged`` folds what is
not merged, ``reading`` puts both together, ``search`` finds the nearest or best rows.  ``spark`` and ``commands`` are the
other doors; ``event_table`` is what is logged; ``forms`` are those of values and rows; ``python_collector`` looks for cycles
rarely while a read makes many objects.
"""
