"""Widenings that a contract asks for and that no flusher has finished yet, as a status shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.rows.carry import fields_within
from lancewal_core.rows.column_types import format_type, parse_type
from lancewal_core.table.contract import Contract


@dataclass(frozen=True, slots=True)
class OpenWidening:
    """A field that gets a wider type once a flusher has rewritten its values."""

    field: str
    """Name of the column, or the path of the member of a struct."""
    old_type: str
    """Type of the field before the widening."""
    new_type: str
    """Type of the field after the widening."""
    since_ms: int
    """Time at which the widening was asked for, in milliseconds since 1970."""
    work: str | None = None
    """Last step that the flusher has done for the widening; null if it has not begun.  Only the flusher's `/status`
    says it."""


def open_widenings(contract: Contract, work: str | None = None) -> tuple[OpenWidening, ...]:
    """Return the widenings that are open, in the order of the columns."""
    return tuple(
        OpenWidening(path, format_type(old), format_type(new), column.widening.since_ms, work)
        for column in contract.columns
        if column.widening is not None
        for path, old, new in _changed(column.name, parse_type(column.type), parse_type(column.widening.type))
    )


def _changed(path: str, old: pa.DataType, new: pa.DataType) -> Iterator[tuple[str, pa.DataType, pa.DataType]]:
    """Yield the fields whose own type differs: the path, the old and the new type.  A path does not name the items of
    a list."""
    inner = fields_within(old)
    if not inner and old != new:
        yield path, old, new
    for was, becomes in zip(inner, fields_within(new), strict=True):
        member = f"{path}.{was.name}" if pa.types.is_struct(old) else path
        yield from _changed(member, was.type, becomes.type)
