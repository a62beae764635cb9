"""Reading lancewal tables: table, snapshots and WAL tail merged at read time, straight from object storage."""

from lancewal_reader.receipt import Receipt, receipt_of
from lancewal_reader.table import LancewalTable, open_table

__all__ = ["LancewalTable", "Receipt", "open_table", "receipt_of"]
