"""Read generations from their flushes, folded.

Guarantees
 1. If files of a flush are gone, their rows are folded from the log.  If the log's entries are gone too, the error is
    ``ObjectMissing``: they were trimmed since the plan.  If a new plan names them again, they are lost.
 2. Each flush is read once, for all of its generations that are asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import pyarrow as pa

from lancewal_core.errors import LOG_LOST, Corrupt, ObjectMissing, PlanStale
from lancewal_core.names.ids import Generation, Region
from lancewal_core.region.flush_files import read_parts
from lancewal_core.region.flushes.manifest import FlushedGeneration, by_flush, read_flush
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.fold import Folded, fold
from lancewal_core.rows.projection import project_rows, written_for
from lancewal_core.rows.schema import RowSchema, Signature
from lancewal_core.table.protocol import fragment_files, fragment_rows, rows_of_fragments
from lancewal_reader.plan.strong import FlushRef

Flushed = Sequence[tuple[Region, FlushRef]]
"""Regions, each with the part of a flush that holds one of its generations."""
FlushedPart = tuple[str, Region, Generation]
"""Key of a flush's manifest, with the region and number of one generation in the flush."""


@dataclass(frozen=True, slots=True)
class RowsOfFile:
    """Consecutive rows of a data file."""

    file: str
    rows: range


@dataclass(frozen=True, slots=True)
class _HeldFlush:
    folded: Folded
    places: Sequence[RowsOfFile]
    """Data files and row numbers of the rows in ``folded``, in the same order.  Empty if the rows were folded from
    the log.
    """


class FlushCache:
    """Cache of folded flushes, by part and columns.  Flushes are immutable, so cached rows stay valid.  If the cache
    has more than ``bytes_max`` bytes, the parts used least recently are dropped.

    A merge adopts a flush's data files unchanged.  So rows cached from a file are also those of the table's fragment,
    deleted rows included.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._found: OrderedDict[tuple[FlushedPart, Signature], _HeldFlush] = OrderedDict()
        self._lock = Lock()

    def get(self, key: FlushedPart, columns: Signature) -> Folded | None:
        with self._lock:
            found = self._found.get((key, columns))
            if found is None:
                return None
            self._found.move_to_end((key, columns))
            return found.folded

    def add(self, key: FlushedPart, columns: Signature, folded: Folded, places: Sequence[RowsOfFile] = ()) -> None:
        with self._lock:
            if (key, columns) in self._found:
                return
            self._found[(key, columns)] = _HeldFlush(folded, places)
            self._bytes += folded.nbytes
            while self._bytes > self._bytes_max and self._found:
                self._bytes -= self._found.popitem(last=False)[1].folded.nbytes

    def of_file(self, file: str, rows: int, column: tuple[object, ...]) -> pa.ChunkedArray | None:
        """Return one column of a data file; None unless the cache has it for all ``rows`` rows.

        ``column``: name, type and ids, as in ``Signature``.
        """
        with self._lock:
            known = [flushed for (_, columns), flushed in self._found.items() if column in columns]
        parts: dict[int, pa.ChunkedArray] = {}
        for flushed in known:
            begin = 0
            for place in flushed.places:
                if place.file == file:
                    parts[place.rows.start] = flushed.folded.rows[column[0]].slice(begin, len(place.rows))
                begin += len(place.rows)
        chunks, next_ = [], 0
        while next_ in parts:
            part = parts.pop(next_)
            chunks += part.chunks
            next_ += len(part)
        return pa.chunked_array(chunks) if chunks and next_ == rows else None


def read_flushed(opened: OpenedTable, cache: FlushCache, refs: Flushed, projected: RowSchema) -> list[Folded]:
    """Return the folded rows of each part, in the order of ``refs``.  Parts that are not cached are read, together with
    other parts of their flush.
    """
    columns = projected.signature
    found = {of: cache.get(_of(*of), columns) for of in refs}
    unknown = _by_manifest([of for of, folded in found.items() if folded is None])
    read = opened.tasks.map(lambda some: _of_flush(opened, some, projected), unknown)
    for some, contents in zip(unknown, read, strict=True):
        for of, (folded, places) in zip(some, contents, strict=True):
            cache.add(_of(*of), columns, folded, places)
            found[of] = folded
    return [folded for folded in (found[of] for of in refs) if folded is not None]


def _of(region: Region, ref: FlushRef) -> FlushedPart:
    return ref.key, region, ref.generation


def _of_flush(opened: OpenedTable, refs: Flushed, projected: RowSchema) -> list[tuple[Folded, Sequence[RowsOfFile]]]:
    """Return the folded parts of one flush, each with the places of its rows in data files.  Parts that are gone are
    folded from the log.
    """
    places: dict[tuple[Region, Generation], Sequence[RowsOfFile]] = {}
    try:
        flush = read_flush(opened.store, refs[0][1].key)
        (parts,) = by_flush([flush.generation_of(region, ref.generation) for region, ref in refs])
        written = opened.columns_of(parts[0])
        columns = written_for(written, projected).table.names
        contents = read_parts(opened.store, opened.table, parts, columns, written)
        read = {
            (p.region, p.generation): content
            if isinstance(content, Corrupt)
            else opened.rows_of_flush(p, content, projected)
            for p, content in zip(parts, contents, strict=True)
        }
        found = [read[region, ref.generation] for region, ref in refs]
        places = {(p.region, p.generation): _places(p) for p in parts}
    except ObjectMissing as error:
        found = [error] * len(refs)
    folds: list[tuple[Folded, Sequence[RowsOfFile]]] = []
    for (region, ref), content in zip(refs, found, strict=True):
        if isinstance(content, ObjectMissing):
            folds.append((_from_log(opened, region, ref, projected), ()))
        elif isinstance(content, Corrupt):
            raise content
        else:
            folds.append((content, places[region, ref.generation]))
    return folds


def _places(part: FlushedGeneration) -> Sequence[RowsOfFile]:
    found = []
    for fragment, own in rows_of_fragments(part.fragments, range(part.rows_from, part.rows_from + part.rows)):
        (file,) = fragment_files(fragment)  # as a flush writes them
        found.append(RowsOfFile(file, range(fragment_rows(fragment)) if own is None else own))
    return found


def _from_log(opened: OpenedTable, region: Region, ref: FlushRef, projected: RowSchema) -> Folded:
    try:
        entries = entries_of(opened, region, ref)
    except PlanStale as error:
        raise ObjectMissing(
            f"{ref.key} is gone, and so are its WAL entries: {error}. {LOG_LOST}", object=ref.key
        ) from error
    return fold([project_rows(opened.rows_of(e), opened.rows, projected) for e in entries], projected)


def _by_manifest(refs: Flushed) -> list[Flushed]:
    """Group the parts of each flush."""
    found: dict[str, list[tuple[Region, FlushRef]]] = {}
    for region, ref in refs:
        found.setdefault(ref.key, []).append((region, ref))
    return list(found.values())


def repaired(opened: OpenedTable, made: Flushed) -> bool:
    """Whether a repair made one of these flushes.  If one cannot be read, the answer is also True, so that the caller
    folds again.

    All flushes are checked in one round of requests, each once.  There may be hundreds of them, of as many regions.
    """

    def one(parts: Flushed) -> bool:
        try:
            flush = read_flush(opened.store, parts[0][1].key)
            return any(flush.generation_of(region, ref.generation).repaired for region, ref in parts)
        except Corrupt:
            return True

    return bool(made) and any(opened.tasks.map(one, _by_manifest(made)))
