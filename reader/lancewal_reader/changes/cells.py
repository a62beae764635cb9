"""Wanted columns in two versions of a table: in which files their cells lie, and which cells are equal.

A value belongs to a field by Lance's id.  A fragment whose files do not have the field shows null.  So two fragments with
the same rows have equal cells in a column if the same files hold the same fields of it in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.process.tasks import Tasks, together
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.equal_cells import Mask, equal_rows
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.checks import fields_with_ids
from lancewal_core.table.protocol import Fragment, PinnedTable
from lancewal_reader.reading.scan import batch_rows
from lancewal_reader.reading.shown_version import shown_version, stored_names

Addresses: TypeAlias = npt.NDArray[np.uint64]
"""Row addresses: the fragment id in the upper 32 bits, the index of the physical row in the lower ones."""
Names = frozenset[str]
Fields = Mapping[str, Mapping[int, str]]
"""For each column Lance's ids of its fields, with their types."""
_Held = frozenset[tuple[str, int, str, str]]
"""Column, id, type and file of each field that a fragment holds."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The columns of interest in an older and a newer version, and comparison of their cells."""

    tasks: Tasks
    columns: tuple[str, ...]
    versions: tuple[PinnedTable, PinnedTable]
    """The older and the newer version, as they are stored."""
    shown: tuple[PinnedTable, PinnedTable]
    """The older and the newer version, showing the columns of the result."""
    fields: tuple[Fields, Fields]
    portion: int
    """Number of rows that are compared at once."""

    @staticmethod
    def of(
        opened: OpenedTable, older: PinnedTable, newer: PinnedTable, rows: RowSchema, columns: Sequence[str]
    ) -> Cells:
        """Find ``columns`` of ``rows`` in both versions.  Raises ``ContractMismatch`` if a version cannot have one of
        them.
        """
        one, other = (_fields(pinned, stored_names(opened, pinned, rows, columns)) for pinned in (older, newer))
        shown = shown_version(opened, older, rows), shown_version(opened, newer, rows)
        portion = batch_rows(pa.schema([rows.table.field(name) for name in columns]))
        return Cells(opened.tasks, tuple(columns), (older, newer), shown, (one, other), portion)

    def apart(self, old: Fragment, new: Fragment) -> Names:
        """Return the columns in which rows may differ between ``old``, a fragment of the older version, and ``new``, a
        later state of the same fragment.
        """
        if _is_plain(old) and self.fields[0] == self.fields[1] and _files(old) == _files(new):
            return frozenset()
        return self._apart(self._held(old, 0), self._held(new, 1))

    def apart_since(self, made: Fragment, later: Fragment) -> Names:
        """Return the columns in which rows may differ between two states of a fragment.  Both states are newer than the
        older version.
        """
        return self._apart(self._held(made, 1), self._held(later, 1))

    def lost(self, old: Iterable[Fragment], new: Iterable[Fragment]) -> Names:
        """Return the columns whose values a rewrite may have lost, because only the ``old`` fragments have a field of
        the column.
        """
        before, after = ([self._held(fragment, 1) for fragment in some] for some in (old, new))
        if None in before or None in after:
            return frozenset(self.columns)
        kept = frozenset.intersection(*[frozenset((name, id_) for name, id_, _, _ in held or ()) for held in after])
        return frozenset(name for held in before for name, id_, _, _ in held or () if (name, id_) not in kept)

    def equal(self, old: Addresses, new: Addresses, columns: Names) -> Mask:
        """Return for each pair of rows whether all cells in ``columns`` are equal.  Rows are given by their addresses
        in both versions.
        """
        found = np.ones(len(old), np.bool_)
        names = [name for name in self.columns if name in columns]
        for start in range(0, len(old), self.portion):
            part = slice(start, start + self.portion)
            found[part] = equal_rows(*self._read(old[part], new[part], names))
        return found

    def _read(self, old: Addresses, new: Addresses, names: Sequence[str]) -> tuple[pa.Table, pa.Table]:
        before, after = self.shown
        return together(self.tasks, lambda: before.take(pa.array(old), names), lambda: after.take(pa.array(new), names))

    def _held(self, fragment: Fragment, side: int) -> _Held | None:
        """Return the fields of the wanted columns that a fragment holds; None if its files do not say which.
        ``side``: 0 for the fields of the older version, 1 for those of the newer version.
        """
        if not _is_plain(fragment):
            return None
        file_of = {i: file for file, ids in zip(fragment.files, fragment.file_fields, strict=True) for i in ids}
        return frozenset(
            (name, i, type_, file_of[i])
            for name, own in self.fields[side].items()
            for i, type_ in own.items()
            if i in file_of
        )

    def _apart(self, one: _Held | None, other: _Held | None) -> Names:
        if one is None or other is None:
            return frozenset(self.columns)
        return frozenset(name for name, _, _, _ in one ^ other)


def row_addresses(fragment: Fragment, rows: npt.NDArray[np.int64]) -> Addresses:
    """Return the addresses of physical rows of a fragment."""
    return rows.astype(np.uint64) | np.uint64(fragment.fragment_id << 32)


def _is_plain(fragment: Fragment) -> bool:
    """Return whether the fragment's files say which fields they hold, and no overlay lies over them."""
    return len(fragment.file_fields) == len(fragment.files) and all(fragment.file_fields)


def _files(fragment: Fragment) -> tuple[object, object]:
    return fragment.files, fragment.file_fields


def _fields(pinned: PinnedTable, names: Mapping[str, str | None]) -> Fields:
    ids, schema = pinned.field_ids, pinned.schema
    return {
        name: {} if own is None else dict(_typed(schema.field(own).type, iter(ids[own]))) for name, own in names.items()
    }


def _typed(type_: pa.DataType, ids: Iterator[int]) -> Iterator[tuple[int, str]]:
    """Yield the ids of a field and those within it, depth first, with their types."""
    yield next(ids), str(type_)
    for child in fields_with_ids(type_):
        yield from _typed(child.type, ids)
