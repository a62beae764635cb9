"""Read each region's input of a merge from its flushes: files to adopt, or rows to write.

Guarantees
 1. A file is adopted only if the rows of all its regions are intact.  If one part of a shared flush is damaged, the
    rows of the other parts are read, and written as new rows.
 2. A file is adopted once, however many regions have rows in it (``adopted_files``).
 3. An adopted fragment names no field that the contract has dropped.  So if another program's column gets the id of a
    dropped field, it does not show that field's values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lancewal_core.errors import Corrupt, or_raised
from lancewal_core.names.ids import Region
from lancewal_core.region.flush_files import read_parts
from lancewal_core.region.flushes.manifest import FlushedGeneration, by_flush
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.fold import Folded, compose
from lancewal_core.table.protocol import without_fields
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.plan import RegionMerge


@dataclass(frozen=True, slots=True)
class RegionInput:
    """One region's input of a merge.  ``partials``: patches.  ``gone``: number of deleted keys."""

    merge: RegionMerge
    adopted: tuple[str, ...]
    """Fragments to adopt unchanged, as JSON.  They have the region's rows, and rows of other regions if the flush is
    shared."""
    rows: pa.Table
    """Rows to write as new rows: those that combining the generations gave; empty if files are adopted."""
    partials: pa.Table
    keys: pa.Table
    """All keys that the region changes: first the keys of ``partials``, then of deleted rows, then of other rows."""
    gone: int
    rewritten: tuple[str, ...] = ()
    """Fragments, as JSON, that were written in place of the flush's, without the rows that are set aside
    (``set_aside``)."""

    @property
    def row_keys(self) -> pa.Table:
        """Keys of the region's rows, adopted or to be written, in the order of these rows."""
        return self.keys.slice(self.partials.num_rows + self.gone)

    @property
    def shared(self) -> str | None:
        """Key of the flush whose files the region adopts together with other regions; None if the region adopts no
        shared flush.
        """
        first = self.merge.flushes[0]
        return first.key if self.adopted and first.shared else None


@dataclass(frozen=True, slots=True)
class AdoptedFiles:
    """Fragments of one flush that the merge adopts, as JSON.  ``parts``: inputs of the regions whose rows the
    fragments have, in the order of the rows.
    """

    fragments: tuple[str, ...]
    parts: Sequence[RegionInput]

    @property
    def row_keys(self) -> pa.Table:
        """Keys of all rows of the fragments, in the order of these rows."""
        return pa.concat_tables([taken.row_keys for taken in self.parts])


def adopted_files(region_inputs: Sequence[RegionInput]) -> list[AdoptedFiles]:
    """Return the files that the merge adopts; files of a shared flush once, with all their regions."""
    found: dict[str, list[RegionInput]] = {}
    for taken in region_inputs:
        if taken.adopted:
            found.setdefault(taken.merge.flushes[0].key, []).append(taken)
    return [
        AdoptedFiles(parts[0].adopted, sorted(parts, key=lambda taken: taken.merge.flushes[0].rows_from))
        for parts in found.values()
    ]


def read_region_inputs(
    context: FlusherContext, merges: Sequence[RegionMerge], together: Collection[Region]
) -> list[RegionInput | Corrupt]:
    """Read the input of each merge, in order.  If objects of a merge are missing or damaged, its result is the error.
    ``together``: regions whose rows are read, to be written as new rows.
    """
    flushes = by_flush([flushed for merge in merges for flushed in merge.flushes])
    contents = context.tasks.map(partial(_read, context, together), flushes)
    read = {
        (flushed.region, flushed.generation): part
        for parts, found in zip(flushes, contents, strict=True)
        for flushed, part in zip(parts, found, strict=True)
    }

    def act(merge: RegionMerge) -> RegionInput | Corrupt:
        return _input(context, merge, [read.pop((merge.region, flushed.generation)) for flushed in merge.flushes])

    return context.tasks.map(act, merges)


@dataclass(frozen=True, slots=True)
class _Part:
    """Content of one generation's part of a flush."""

    content: Folded | Corrupt
    adopted: bool
    """Whether the files can be adopted.  If so, only the keys of the part's rows were read."""


def _read(opened: OpenedTable, together: Collection[Region], parts: Sequence[FlushedGeneration]) -> list[_Part]:
    """Read these parts of one flush.  Each object is read once for all parts."""
    adopted = parts[0].region not in together
    try:
        rows = opened.columns_of(parts[0])
        columns = list(rows.primary_key) if adopted else rows.table.names
        found = read_parts(opened.store, opened.table, parts, columns, rows)
        if adopted and len(parts) > 1 and any(isinstance(content, Corrupt) for content in found):
            adopted, found = False, read_parts(opened.store, opened.table, parts, rows.table.names, rows)
    except Corrupt as error:
        found = [error] * len(parts)
    return [_Part(content, adopted) for content in found]


def _input(opened: OpenedTable, merge: RegionMerge, parts: Sequence[_Part]) -> RegionInput | Corrupt:
    rows, first = opened.contract.rows, merge.flushes[0]
    names = list(rows.primary_key)
    try:
        contents = [or_raised(part.content) for part in parts]
        if parts[0].adopted:
            content = contents[0]
            # Keys are the same in every contract.
            partials = opened.rows_as_wanted(content.partials, first.contract_version, lambda: first.key)
            folded = Folded(content.rows, content.gone, partials)
        else:
            folded = compose([opened.rows_of_flush(*one) for one in zip(merge.flushes, contents, strict=True)], rows)
    except Corrupt as error:
        return error
    keys = pa.concat_tables([folded.partials.select(names), folded.gone, folded.rows.select(names)])
    fragments = _adopted(opened, first) if parts[0].adopted and first.rows else ()
    new = rows.table.empty_table() if parts[0].adopted else folded.rows
    return RegionInput(merge, fragments, new, folded.partials, keys, folded.gone.num_rows)


def _adopted(opened: OpenedTable, flushed: FlushedGeneration) -> tuple[str, ...]:
    """Return the fragments of a flush as JSON, without fields that were dropped since (guarantee 3)."""
    if opened.columns_of(flushed) == opened.contract.rows:
        return flushed.fragments
    gone = set(opened.contract_of(flushed.contract_version).field_ids) - set(opened.contract.field_ids)
    return tuple(without_fields(fragment, gone) for fragment in flushed.fragments)
