"""Generations that a plan reads from their flushes, folded.

Guarantees
 1. What of a flush is gone is folded from the log; if that is gone too, ``ObjectMissing``: trimmed since it was planned, or,
    if a new plan names it again, lost.
 2. Each flush is read once, for all of its generations that are asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from lancewal_core.errors import LOG_LOST, Corrupt, ObjectMissing, PlanStale
from lancewal_core.ids import Generation, Region
from lancewal_core.region.flushes.manifest import by_flush, read_flush
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.snapshot import read_parts
from lancewal_core.rows.fold import Folded, fold
from lancewal_core.rows.projection import project_rows
from lancewal_core.rows.schema import RowSchema
from lancewal_reader.plan.strong import SnapshotRef

Flushed = Sequence[tuple[Region, SnapshotRef]]
"""Generations that are read from their flushes."""
FlushedPart = tuple[str, Region, Generation]
"""The manifest of a flush, and which of its generations."""


class SnapshotCache:
    """Folded snapshots by what they are of and columns; immutable, so what was read stays true.  ``bytes_max`` bounds it."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._found: OrderedDict[tuple[FlushedPart, tuple[str, ...]], Folded] = OrderedDict()
        self._lock = Lock()

    def get(self, key: FlushedPart, columns: tuple[str, ...]) -> Folded | None:
        with self._lock:
            found = self._found.get((key, columns))
            if found is not None:
                self._found.move_to_end((key, columns))
            return found

    def add(self, key: FlushedPart, columns: tuple[str, ...], folded: Folded) -> None:
        with self._lock:
            if (key, columns) in self._found:
                return
            self._found[(key, columns)] = folded
            self._bytes += folded.nbytes
            while self._bytes > self._bytes_max and self._found:
                self._bytes -= self._found.popitem(last=False)[1].nbytes


def read_flushed(opened: OpenedTable, cache: SnapshotCache, refs: Flushed, projected: RowSchema) -> list[Folded]:
    """Each of these; what is remembered of none is read, together with others of its flush."""
    columns = tuple(projected.table.names)
    found = {of: cache.get(_of(*of), columns) for of in refs}
    unknown = _by_manifest([of for of, folded in found.items() if folded is None])
    read = opened.tasks.map(lambda some: _of_flush(opened, some, projected), unknown) if unknown else []
    for some, contents in zip(unknown, read, strict=True):
        for of, folded in zip(some, contents, strict=True):
            cache.add(_of(*of), columns, folded)
            found[of] = folded
    return [folded for folded in (found[of] for of in refs) if folded is not None]


def _of(region: Region, ref: SnapshotRef) -> FlushedPart:
    return ref.key, region, ref.generation


def _of_flush(opened: OpenedTable, refs: Flushed, projected: RowSchema) -> list[Folded]:
    """Parts of one flush; what of it is gone is folded from the log."""
    whole = opened.contract.rows
    try:
        flush = read_flush(opened.store, refs[0][1].key)
        (parts,) = by_flush([flush.snapshot(region, ref.generation) for region, ref in refs])
        contents = read_parts(opened.store, opened.table, parts, projected.table.names, whole)
        read = {(p.region, p.generation): content for p, content in zip(parts, contents, strict=True)}
        found = [read[region, ref.generation] for region, ref in refs]
    except ObjectMissing as error:
        found = [error] * len(refs)
    folds = []
    for (region, ref), content in zip(refs, found, strict=True):
        if isinstance(content, ObjectMissing):
            content = _from_log(opened, region, ref, projected)
        elif isinstance(content, Corrupt):
            raise content
        else:
            partials = project_rows(content.partials, whole, projected)
            content = Folded(content.rows, content.gone, partials)
        folds.append(content)
    return folds


def _from_log(opened: OpenedTable, region: Region, ref: SnapshotRef, projected: RowSchema) -> Folded:
    try:
        entries = entries_of(opened, region, ref)
    except PlanStale as error:
        raise ObjectMissing(
            f"{ref.key} is gone, and so are its WAL entries: {error}. {LOG_LOST}", object=ref.key
        ) from error
    return fold([project_rows(e.rows, opened.contract.rows, projected) for e in entries], projected)


def _by_manifest(refs: Flushed) -> list[Flushed]:
    """Those of one flush together."""
    found: dict[str, list[tuple[Region, SnapshotRef]]] = {}
    for region, ref in refs:
        found.setdefault(ref.key, []).append((region, ref))
    return list(found.values())


def repaired(opened: OpenedTable, made: Flushed) -> bool:
    """Whether a repair made one of them; also where that cannot be read: then what can is folded anew.

    One round, each flush once: behind a hand-over they are those of hundreds of regions.
    """

    def one(parts: Flushed) -> bool:
        try:
            flush = read_flush(opened.store, parts[0][1].key)
            return any(flush.snapshot(region, ref.generation).repaired for region, ref in parts)
        except Corrupt:
            return True

    return bool(made) and any(opened.tasks.map(one, _by_manifest(made)))
