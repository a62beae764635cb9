"""Count the objects below ``_lancewal/`` by kind (``object_kinds``), and find *orphans*, objects that nothing refers
to.

Garbage collection never deletes orphans, because nothing says who needs them.  Orphans are
 * an object whose key has no form that lancewal uses,
 * an object of a region that the contract does not name (for example of the topic that ``table alter --topic-id``
   replaced),
 * an object of a store check that a killed process left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lancewal_core.names import paths
from lancewal_core.store.object_kinds import KINDS, Collected, kind_of
from lancewal_core.store.object_store import ObjectInfo
from lancewal_core.table.contract import Contract
from lancewal_flusher.garbage.find import FENCE_SIZE_MAX
from lancewal_flusher.garbage.flushes import KnownFlushes

PROBE_KEPT_MS = 24 * 3600 * 1000
"""Age in milliseconds from which on an object of a store check counts as an orphan: far longer than a check takes."""


SEGMENTS = "WAL segments"
FENCES = "fences"
"""Kind of fences in counts.  An object with a segment's key counts as a fence if it has at most ``FENCE_SIZE_MAX``
bytes."""
UNKNOWN = "unknown objects"


@dataclass(frozen=True, slots=True)
class CountedObjects:
    """Number and total size of the objects of one kind."""

    kind: str
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object that no state or commit refers to, and the reason why it is reported."""

    key: str
    bytes: int
    reason: str


def grouped(keys: Iterable[str], sizes: Mapping[str, int]) -> tuple[CountedObjects, ...]:
    """Count the keys by kind, in the order of ``object_kinds``.  Keys that ``sizes`` does not name add no bytes."""
    found: dict[str, list[int]] = {}
    for key in keys:
        size = sizes.get(key)
        found.setdefault(_counted_as(key, size), []).append(size or 0)
    return tuple(CountedObjects(kind, len(found[kind]), sum(found[kind])) for kind in _order() if kind in found)


def _counted_as(key: str, size: int | None) -> str:
    if size is not None and size <= FENCE_SIZE_MAX and paths.parse_wal_segment(key) is not None:
        return FENCES
    kind = kind_of(key)
    return UNKNOWN if kind is None else kind.counted_as


def _order() -> Iterator[str]:
    for name in dict.fromkeys(kind.counted_as for kind in KINDS):
        yield name
        if name == SEGMENTS:
            yield FENCES
    yield UNKNOWN


def orphans(listed: Iterable[ObjectInfo], contract: Contract, now_ms: int, flushes: KnownFlushes) -> tuple[Orphan, ...]:
    """Return the orphans among the listed objects (module docstring), sorted by key.  ``flushes``: cache of flushes
    that no generation names.
    """
    regions, pages = frozenset(contract.regions), frozenset(contract.pages)

    def reason(info: ObjectInfo) -> str | None:
        kind = kind_of(info.key)
        if kind is None:
            return "no object of lancewal has such a key"
        if (region := kind.region(info.key)) is not None and region not in regions:
            return f"the table's contract does not name the partition {region.name}"
        if (page := kind.page(info.key)) is not None and page not in pages:
            name = f"page {page.number} of {page.topic}/{page.topic_id}"
            return f"no partition that the table's contract names has its state in {name}"
        if (of := flushes.region_outside(info.key, regions)) is not None:
            return f"a generation of its flush is of the partition {of.name}, which the table's contract does not name"
        if kind.collected is Collected.NEVER_BUT_SHOWN and now_ms - info.modified_ms >= PROBE_KEPT_MS:
            return "an object of a store check that a killed process left"
        return None

    found = [Orphan(info.key, info.size, why) for info in listed if (why := reason(info)) is not None]
    return tuple(sorted(found, key=lambda orphan: orphan.key))
