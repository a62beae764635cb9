"""Time to live of rows: how old the time in a column may be until the row may be deleted.

A row *expires* when its column's time lies more than ``seconds`` in the past; null never does.  Times without a zone
are taken as UTC, a date as its first moment.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import RowSchema

_DAY_MS = 86_400_000
_PER_MS = {"us": 1_000, "ns": 1_000_000}


@dataclass(frozen=True, slots=True)
class Ttl:
    """Rule of a table: a row expires when the time in ``column`` is more than ``seconds`` in the past."""

    column: str
    seconds: int

    def threshold(self, type_: pa.DataType, now_ms: int) -> int:
        """Return the smallest value of the column that has not expired, as the integer that Arrow stores."""
        cut_ms = now_ms - self.seconds * 1000
        if pa.types.is_date32(type_):
            return -(-cut_ms // _DAY_MS)
        if type_.unit == "s":
            return -(-cut_ms // 1000)
        return int(cut_ms * _PER_MS.get(type_.unit, 1))


def check_ttl(ttl: Ttl | None, rows: RowSchema, patches: bool) -> None:
    """Raise ``InvalidSchema`` unless rows of this table can expire by this rule."""
    if ttl is None:
        return
    if ttl.column not in rows.columns.names:
        raise InvalidSchema(
            f"table.ttl_column: column {ttl.column!r} is not among the table's columns {rows.columns.names}"
        )
    type_ = rows.columns.field(ttl.column).type
    if not (pa.types.is_timestamp(type_) or pa.types.is_date32(type_)):
        raise InvalidSchema(
            f"table.ttl_column: column {ttl.column!r} has type {type_}; rows expire by a timestamp or a date32"
        )
    if patches:
        raise InvalidSchema(
            "table.ttl_column: the table's contract allows patches, and a patch of a row that expires meanwhile would lose "
            "the rest of the row. A table whose rows expire has table.patches: false"
        )
