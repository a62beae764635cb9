"""Read the input of a merge from each region's flushes, to be adopted or rewritten.

Guarantees
 1. A file is adopted only if the rows of all its regions are intact.  If one part of a shared flush is damaged, the rows
    of the other parts are read, to be rewritten.
 2. A file is adopted once, however many regions have rows in it (``adopted_files``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lancewal_core.errors import Corrupt
from lancewal_core.names.ids import Generation, Region
from lancewal_core.region.flush_files import read_folded, read_gone, read_partials, read_parts, read_rows
from lancewal_core.region.flushes.manifest import FlushedGeneration, by_flush
from lancewal_core.rows.fold import Folded, compose
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.plan import RegionMerge


@dataclass(frozen=True, slots=True)
class RegionInput:
    """One region's part of a merge."""

    merge: RegionMerge
    adopted: tuple[str, ...]
    """Fragments taken as they are.  They have rows of the region, and of others if others share them."""
    rows: pa.Table
    """Rows to write as new ones: survivors of combined generations."""
    partials: pa.Table
    keys: pa.Table
    """All keys that the region's part touches: keys of ``partials``, then of deleted rows, then of other rows."""
    gone: int
    rewritten: tuple[str, ...] = ()
    """Fragments that replace those of a flush, without the rows that are set aside (``set_aside``)."""

    @property
    def row_keys(self) -> pa.Table:
        """Keys of the region's rows, adopted or to be written, in the order of these rows."""
        return self.keys.slice(self.partials.num_rows + self.gone)

    @property
    def shared(self) -> str | None:
        """The flush whose files the region adopts together with other regions; None if there is none."""
        first = self.merge.flushes[0]
        return first.key if self.adopted and first.shared else None


@dataclass(frozen=True, slots=True)
class AdoptedFiles:
    """Fragments of one flush, and the regions whose rows they have, in the order of the rows."""

    fragments: tuple[str, ...]
    parts: Sequence[RegionInput]

    @property
    def row_keys(self) -> pa.Table:
        """Keys of all rows of the fragments, in the order of these rows."""
        return pa.concat_tables([taken.row_keys for taken in self.parts])


def adopted_files(region_inputs: Sequence[RegionInput]) -> list[AdoptedFiles]:
    """Return the files that the merge adopts as they are, each once."""
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
    """Return the input of each merge in order, or the error if something of it is missing or damaged.  ``together``:
    regions whose rows are rewritten."""
    read = _shared(context, merges, together)
    return context.tasks.map(partial(_prepared, context, together, read), merges)


@dataclass(frozen=True, slots=True)
class _Part:
    """Content of one part of a flush with several parts."""

    content: Folded | Corrupt
    adopted: bool
    """Whether the files can be adopted.  If so, only the keys of the part's rows were read."""


_Parts = Mapping[tuple[str, Region, Generation], _Part]


def _name(flushed: FlushedGeneration) -> tuple[str, Region, Generation]:
    return flushed.key, flushed.region, flushed.generation


def _shared(context: FlusherContext, merges: Sequence[RegionMerge], together: Collection[Region]) -> _Parts:
    """Read the parts to be merged of flushes with several parts.  Each object is read once for all its parts."""
    flushes = by_flush([s for merge in merges for s in merge.flushes if s.shared])

    def read(parts: Sequence[FlushedGeneration]) -> list[_Part]:
        adopted, rows = parts[0].region not in together, context.columns_of(parts[0])
        columns = list(rows.primary_key) if adopted else rows.table.names
        found = read_parts(context.store, context.table, parts, columns, rows)
        if adopted and any(isinstance(content, Corrupt) for content in found):
            adopted, found = False, read_parts(context.store, context.table, parts, rows.table.names, rows)
        return [_Part(content, adopted) for content in found]

    contents = context.tasks.map(read, flushes) if flushes else []
    return {
        _name(flushed): found
        for parts, content in zip(flushes, contents, strict=True)
        for flushed, found in zip(parts, content, strict=True)
    }


def _prepared(
    context: FlusherContext, together: Collection[Region], read: _Parts, merge: RegionMerge
) -> RegionInput | Corrupt:
    try:
        found = read.get(_name(merge.flushes[0]))
        if merge.region in together or (found is not None and not found.adopted):
            return _combine(context, merge, read)
        return _adopt(context, merge, read)
    except Corrupt as error:
        return error


def _content(read: _Parts, flushed: FlushedGeneration) -> Folded | None:
    """Return what ``_shared`` read of a part; None if the generation has a flush of its own.  Raises the part's
    damage."""
    found = read.get(_name(flushed))
    content = None if found is None else found.content
    if isinstance(content, Corrupt):
        raise content
    return content


def _adopt(context: FlusherContext, merge: RegionMerge, read: _Parts) -> RegionInput:
    rows = context.contract.rows
    names = list(rows.primary_key)
    (only,) = merge.flushes
    content = _content(read, only)
    if content is None:
        written = context.columns_of(only)
        content = Folded(
            gone=read_gone(context.store, only, written),
            partials=read_partials(context.store, only, written),
            rows=read_rows(context.table, only, names, written),
        )
    # Keys are the same in every contract.
    partials = context.rows_as_wanted(content.partials, only.contract_version, lambda: only.key)
    keys = pa.concat_tables([partials.select(names), content.gone, content.rows])
    fragments = only.fragments if only.rows else ()
    return RegionInput(merge, fragments, rows.table.empty_table(), partials, keys, content.gone.num_rows)


def _combine(context: FlusherContext, merge: RegionMerge, read: _Parts) -> RegionInput:
    rows = context.contract.rows
    names = list(rows.primary_key)
    contents = [
        context.rows_of_flush(
            s, _content(read, s) or read_folded(context.store, context.table, s, context.columns_of(s))
        )
        for s in merge.flushes
    ]
    folded: Folded = compose(contents, rows)
    keys = pa.concat_tables([folded.partials.select(names), folded.gone, folded.rows.select(names)])
    return RegionInput(merge, (), folded.rows, folded.partials, keys, folded.gone.num_rows)
