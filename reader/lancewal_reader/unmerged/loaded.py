"""Cache folded deltas, and find the one that the next plan can extend.

Guarantee: a plan extends a cached fold.  It reads and folds only the records after the fold's cuts, and flushes that
a cut divides.  A merge may have moved records of a region into the table since.  All keys of that region then leave
the fold, and the region's delta is folded again.  If that is more work than the whole delta, or can no longer be
read, the whole delta is folded again.

A fold is not extended in two cases.  Either a repair has made a flush since, so a person may have given up some of
its records.  Or the positions of a region went back, as after a restore.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from threading import Lock
from typing import TypeVar

import pyarrow as pa

from lancewal_core.names.ids import Region
from lancewal_core.rows.fold import Folded
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.projection import project_rows
from lancewal_core.rows.schema import RowSchema, Signature
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_reader.plan.strong import FlushRef, RegionDelta
from lancewal_reader.unmerged.flushed import Flushed
from lancewal_reader.unmerged.portions import records_in

T = TypeVar("T")
_FIRST, _NEXT = attrgetter("first"), attrgetter("next")
_Known = tuple[tuple[RegionDelta, ...], Signature, ConflictsRef | None]


class Loaded:
    """A folded delta, its mask, and counts of the keys in conflict that it leaves out.

    ``met``: keys that several regions have; ``unmerged``, ``partitions``: as in ``LeftOut``.
    """

    def __init__(
        self,
        folded: Folded,
        schema: RowSchema,
        met: pa.Table | None = None,
        unmerged: int = 0,
        partitions: tuple[int, ...] = (),
        wider: Loaded | None = None,
    ) -> None:
        """``wider``: the value with more columns from which this one was made, if any."""
        self.folded = folded
        self.met = met
        self.unmerged = unmerged
        self.partitions = partitions
        self._schema = schema
        self._wider = wider

    @cached_property
    def mask(self) -> KeySet:
        """All keys of the delta, also of deletions and patches.  A read hides the merged rows with these keys."""
        return KeySet(self.folded.keys(self._schema)) if self._wider is None else self._wider.mask

    def of_columns(self, schema: RowSchema) -> Loaded:
        """Return this delta with the columns of ``schema`` only; it must have them."""
        names = schema.table.names
        if names == self._schema.table.names:
            return self
        partials = project_rows(self.folded.partials, self._schema, schema)
        narrow = Folded(self.folded.rows.select(names), self.folded.gone, partials)
        return Loaded(narrow, schema, self.met, self.unmerged, self.partitions, self._wider or self)


@dataclass(frozen=True, slots=True)
class Begun:
    """A cached fold to extend: first remove the keys of ``left``, then add the fold of ``behind``, the records after
    it.
    """

    loaded: Loaded
    behind: Sequence[RegionDelta]
    left: Sequence[RegionDelta] = ()
    """Deltas in the cached fold whose regions have had records merged into the table since."""


class LoadedCache:
    """Cache of recently folded deltas, the newest last.  Threads may share it.

    Consecutive reads often need the same delta, a slightly longer one, or one with fewer columns.

    If there are more than ``count_max``, only the newest fold for each choice of columns is kept, for ``choices_max``
    choices.  So alternating scans, vector searches and text searches each find a fold with their columns.
    ``bytes_max`` limits the bytes; None: no limit.
    """

    def __init__(self, count_max: int = 2, bytes_max: int | None = None, choices_max: int = 4) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._choices_max = choices_max
        self._found: tuple[tuple[_Known, Loaded], ...] = ()
        """Deltas are compared, not hashed: a hash would visit every source.  Successive plans share most of their sources,
        tens of thousands of them."""
        self._lock = Lock()

    def get(
        self, deltas: Sequence[RegionDelta], columns: Signature, conflicts: ConflictsRef | None = None
    ) -> Loaded | None:
        """Return the fold of these deltas with these columns or more (``Loaded.of_columns``); None if it is not cached."""
        wanted = (tuple(deltas), conflicts)
        found = [(names, loaded) for (of, names, in_force), loaded in self._found if (of, in_force) == wanted]
        same = next((loaded for names, loaded in found if names == columns), None)
        return same or next((loaded for names, loaded in found if _has(names, columns)), None)

    def begun(
        self, deltas: Sequence[RegionDelta], columns: Signature, repaired: Callable[[Flushed], bool]
    ) -> Begun | None:
        """Return the newest cached fold, with these columns or more, that can be extended to ``deltas`` at less cost
        than folding all of them.  Return None if there is none.  ``repaired`` tells whether a repair made one of the
        given flushes.
        """
        for (known, names, _), loaded in reversed(self._found):
            if _has(names, columns):
                begun = _begun(loaded, deltas, known)
                if begun is not None and not repaired(_made_since(deltas, known)):
                    return begun
        return None

    def add(
        self,
        deltas: Sequence[RegionDelta],
        columns: Signature,
        loaded: Loaded,
        conflicts: ConflictsRef | None = None,
    ) -> None:
        known = (tuple(deltas), columns, conflicts)
        with self._lock:
            others = [found for found in self._found if found[0] != known]
            self._found = self._kept_of([*others, (known, loaded)])
            while self._bytes_max is not None and self._found and self._nbytes() > self._bytes_max:
                self._found = self._found[1:]

    def _kept_of(self, found: Sequence[tuple[_Known, Loaded]]) -> tuple[tuple[_Known, Loaded], ...]:
        over, newest = len(found) - self._count_max, {names: at for at, ((_, names, _), _) in enumerate(found)}
        older = [at for at, ((_, names, _), _) in enumerate(found) if newest[names] != at]
        dropped = set(older[: max(over, 0)])
        kept = [some for at, some in enumerate(found) if at not in dropped]
        return tuple(kept[-max(self._count_max, self._choices_max) :])

    def _nbytes(self) -> int:
        return sum(loaded.folded.nbytes for _, loaded in self._found)


def _has(names: Signature, columns: Signature) -> bool:
    return set(names).issuperset(columns)


def _begun(loaded: Loaded, deltas: Sequence[RegionDelta], known: Sequence[RegionDelta]) -> Begun | None:
    """Return how to extend ``loaded``, the fold of ``known``, to the fold of ``deltas``.  Return None if this is
    impossible, or no less work than to fold all of ``deltas``.

    The records at a region's positions never change, in an entry or in a flush, except those that a person gives up
    in a repair.  A flush that a cut of ``known`` divides may therefore be folded whole, after ``known``.  Folding
    records again that ``known`` already has changes nothing.  A row or a deletion replaces the key's state again.
    Patches set the last value of each column again.
    """
    if [d.region for d in deltas] != [k.region for k in known]:
        return None
    behind, left = [], []
    for delta, before in zip(deltas, known, strict=True):
        if delta.cut < before.cut or delta.start < before.start:
            return None
        if delta.start > before.start:
            left.append(before)
            behind.append(delta)
            continue
        # Sources ascend: one at most is divided by the cut.
        sources = delta.sources[bisect_right(delta.sources, before.cut, key=_NEXT) :]
        if sources and sources[0].first < before.cut and not isinstance(sources[0], FlushRef):
            return None
        behind.append(RegionDelta(delta.region, sources, delta.cut))
    if left and records_in([*left, *behind]) >= records_in(deltas):
        return None
    return Begun(loaded, behind, left)


def _made_since(deltas: Sequence[RegionDelta], known: Sequence[RegionDelta]) -> Flushed:
    """Return the flushes in ``deltas`` that begin before the cuts of ``known`` and are not in ``known``."""
    made: list[tuple[Region, FlushRef]] = []
    for delta, before in zip(deltas, known, strict=True):
        sources = delta.sources[: bisect_left(delta.sources, before.cut, key=_FIRST)]
        if sources != before.sources[: len(sources)]:  # mostly they are the very same
            new = (s for s in sources if isinstance(s, FlushRef) and s not in before.sources)
            made += ((delta.region, source) for source in new)
    return made
