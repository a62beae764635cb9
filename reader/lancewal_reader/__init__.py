"""Reading lancewal tables: table, snapshots and WAL tail merged at read time, straight from object storage.

``table`` is what a program opens; it makes ``reads``, given as ``rows``, of now or of a ``point``. A ``plan`` says what is
read, ``unmerged`` folds what is not merged, ``scan`` puts both together under a ``filter``, ``lookup`` finds the rows of
given keys in both, ``search`` the nearest ones, and ``left_out`` says what is not in it. ``spark`` and ``commands`` are the
other doors; ``event_table`` is what is logged; ``narrow_times`` and ``plain_rows`` are forms of values.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lancewal_reader.left_out import LeftOut, left_out_of
    from lancewal_reader.point.at import At
    from lancewal_reader.point.receipt import Receipt, receipt_of
    from lancewal_reader.point.token import Token
    from lancewal_reader.rows import Rows
    from lancewal_reader.search.found import SearchCoverage, SearchRows
    from lancewal_reader.table import Table, open_table

__all__ = [
    "At",
    "LeftOut",
    "Receipt",
    "Rows",
    "SearchCoverage",
    "SearchRows",
    "Table",
    "Token",
    "left_out_of",
    "open_table",
    "receipt_of",
]

_PLACES = {
    "At": "lancewal_reader.point.at",
    "LeftOut": "lancewal_reader.left_out",
    "Receipt": "lancewal_reader.point.receipt",
    "Rows": "lancewal_reader.rows",
    "SearchCoverage": "lancewal_reader.search.found",
    "SearchRows": "lancewal_reader.search.found",
    "Table": "lancewal_reader.table",
    "Token": "lancewal_reader.point.token",
    "left_out_of": "lancewal_reader.left_out",
    "open_table": "lancewal_reader.table",
    "receipt_of": "lancewal_reader.point.receipt",
}


def __getattr__(name: str) -> Any:
    """Loaded when it is used: the commands are in this package, and most of them read no table."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
