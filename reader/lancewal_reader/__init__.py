"""Reading lancewal tables: table, snapshots and WAL tail merged at read time, straight from object storage.

``table`` is what a program opens; it makes ``reads``, given as ``rows``, of now or of a ``point``.  A ``plan`` says what is
read, ``unmerged`` folds what is not merged, ``scan`` puts both together under a ``filter``, and ``left_out`` says what is not
in it.  ``spark`` and ``commands`` are the other doors; ``event_table`` is what is logged; ``narrow_times`` and ``plain_rows``
are forms of values.
"""

from lancewal_reader.left_out import LeftOut, left_out_of
from lancewal_reader.point.at import At
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.point.token import Token
from lancewal_reader.rows import Rows
from lancewal_reader.table import Table, open_table

__all__ = ["At", "LeftOut", "Receipt", "Rows", "Table", "Token", "left_out_of", "open_table", "receipt_of"]
