"""Reading lancewal tables: table, snapshots and WAL tail merged at read time, straight from object storage.

``table`` is what a program opens; a ``plan`` says what is read, ``unmerged`` folds what is not merged, ``scan`` puts
both together under a ``filter``, and a ``receipt`` says what it was, ``left_out`` what is not in it. ``spark`` and
``commands`` are the other doors; ``event_table`` is what is logged; ``narrow_times`` and ``plain_rows`` are forms of values.
"""

from lancewal_reader.left_out import LeftOut, left_out_of
from lancewal_reader.receipt import Receipt, receipt_of
from lancewal_reader.table import LancewalTable, open_table

__all__ = ["LancewalTable", "LeftOut", "Receipt", "left_out_of", "open_table", "receipt_of"]
