"""A table version with the columns of a result, if the version lacks some, or has them with other names or types.

Two kinds of reads may find such a version: a read of a point, and a read during which columns are changed.  Filters
are evaluated on the columns of the result, as for unmerged rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from lancewal_core.errors import ContractMismatch
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.carry import Carry, carry
from lancewal_core.rows.projection import project
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.protocol import ROW_ADDRESS, AllBut, PinnedTable
from lancewal_reader.reading.filter import passing
from lancewal_reader.reading.result_columns import columns_of_version


def shown_version(opened: OpenedTable, pinned: PinnedTable, rows: RowSchema) -> PinnedTable:
    """Wrap a version so that it shows the columns of ``rows``.  A version that has them all is returned unchanged."""
    own = columns_of_version(opened, pinned, rows)
    return pinned if _has_all(own, rows) else cast("PinnedTable", _ShownVersion(pinned, own, rows))


def stored_names(
    opened: OpenedTable, pinned: PinnedTable, rows: RowSchema, columns: Sequence[str]
) -> Mapping[str, str | None]:
    """Return the names of these columns in the stored version; None for columns that the version lacks."""
    own = columns_of_version(opened, pinned, rows)
    if _has_all(own, rows):
        return {name: name for name in columns}
    found = {
        new.name: None if old is None else old.name for old, new in _way(pinned, own, project(rows, columns)).sources
    }
    return {name: found[name] for name in columns}


def _has_all(own: RowSchema, rows: RowSchema) -> bool:
    return own is rows or set(own.signature).issuperset(rows.signature)


def stored_version(pinned: PinnedTable) -> PinnedTable:
    """Return the version as it is stored, without the wrapper of ``shown_version``."""
    return pinned._pinned if isinstance(pinned, _ShownVersion) else pinned


class _ShownVersion:
    """``PinnedTable`` with the columns of ``rows``, carried over from its own.  Everything that names no column is passed
    to the version itself."""

    def __init__(self, pinned: PinnedTable, own: RowSchema, rows: RowSchema) -> None:
        self._pinned = pinned
        self._own = own
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pinned, name)

    @property
    def schema(self) -> pa.Schema:
        return self._rows.table

    def scan(
        self,
        columns: Sequence[str],
        *,
        filter: str | None = None,
        fragment_ids: Sequence[int] | None = None,
        rows: range | AllBut | None = None,
        with_row_address: bool = False,
        batch_rows: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        way = self._way(columns if filter is None else self._rows.columns.names)
        for batch in self._pinned.scan(
            _names(way),
            fragment_ids=fragment_ids,
            rows=rows,
            with_row_address=with_row_address,
            batch_rows=batch_rows,
        ):
            found = pa.Table.from_batches([_shown(batch, way)])
            if filter is not None:
                kept = pa.array(passing(found, filter))
                found, batch = found.take(kept), batch.take(kept)
            found = found.select(list(columns))
            if with_row_address:
                found = found.append_column(batch.schema.field(ROW_ADDRESS), [batch[ROW_ADDRESS]])
            yield from found.combine_chunks().to_batches()

    def take(self, addresses: pa.Array, columns: Sequence[str]) -> pa.Table:
        way = self._way(columns)
        return _shown(self._pinned.take(addresses, _names(way)), way).select(list(columns))

    def _way(self, columns: Sequence[str]) -> Carry:
        return _way(self._pinned, self._own, project(self._rows, columns))


def _way(pinned: PinnedTable, own: RowSchema, wanted: RowSchema) -> Carry:
    way = carry(own, wanted)
    if way is None:
        raise ContractMismatch(
            f"version {pinned.version} of the Lance table has columns {own.columns.names}, which cannot "
            f"become {wanted.columns.names}. Read the table at this version alone (`at`)",
            version=pinned.version,
        )
    return way


def _names(way: Carry) -> list[str]:
    return [old.name for old, _ in way.sources if old is not None]


def _shown(rows: Any, way: Carry) -> Any:
    """Return the wanted columns of a batch or a table."""
    return type(rows).from_arrays(way.columns(rows), schema=way.wanted.table)
