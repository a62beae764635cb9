"""What the objects below ``_lancewal/`` are, by their keys alone, and which of them nothing accounts for.

An *orphan* is never deleted by garbage collection, since nothing says whose it is: a key that no parser knows, an object of
a region that the contract does not name (of a topic before ``table rebind``), a probe that a killed process left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lancewal_core import paths
from lancewal_core.ids import Region
from lancewal_core.store.object_store import ObjectInfo
from lancewal_core.table.contract import Contract
from lancewal_flusher.garbage.find import FENCE_SIZE_MAX

PROBE_KEPT_MS = 24 * 3600 * 1000
"""Far longer than any probe takes."""


class Kind(StrEnum):
    """Kinds of objects, in the order in which they are shown; the first eight may become garbage."""

    SEGMENT = "WAL segments"
    FENCE = "fences"
    SNAPSHOT = "snapshot files"
    KEY_PART = "parts of key runs"
    INDEX = "index versions"
    CATALOG = "key catalog versions"
    PAGE = "history pages"
    PARCEL = "parcels of tasks"
    CONTRACT = "contract versions"
    CONTROL = "control versions"
    DRAIN = "ends of old partitions"
    MERGE = "merge records"
    LOSS = "accepted losses"
    LOAD = "beginnings of loads"
    PROBE = "probes"
    UNKNOWN = "unknown objects"


_OF_REGIONS: Mapping[Kind, Callable[[str], tuple[Any, ...] | None]] = {
    Kind.SNAPSHOT: paths.parse_snapshot_file,
    Kind.INDEX: paths.parse_index_version,
    Kind.PAGE: paths.parse_history_page,
    Kind.LOSS: paths.parse_loss_record,
}
_OTHERS: Mapping[Callable[[str], object | None], Kind] = {
    paths.parse_wal_segment: Kind.SEGMENT,
    paths.parse_key_part: Kind.KEY_PART,
    paths.parse_key_catalog_version: Kind.CATALOG,
    paths.parse_contract_version: Kind.CONTRACT,
    paths.parse_control_version: Kind.CONTROL,
    paths.parse_drain_version: Kind.DRAIN,
    paths.parse_merge_record: Kind.MERGE,
    paths.parse_merge_finished: Kind.MERGE,
    paths.parse_load_record: Kind.LOAD,
    paths.parse_probe: Kind.PROBE,
}


@dataclass(frozen=True, slots=True)
class Group:
    """Objects of one kind, counted."""

    kind: str
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object that nothing accounts for, and why."""

    key: str
    bytes: int
    reason: str


def kind_of(key: str, size: int) -> tuple[Kind, Region | None]:
    """The kind of an object, and its region where it has one.  Fences are told from segments by their size."""
    for kind, parse_in_region in _OF_REGIONS.items():
        if (parsed := parse_in_region(key)) is not None:
            return kind, parsed[0]
    if key.startswith(paths.parcels_prefix()):
        return Kind.PARCEL, None
    for parse, kind in _OTHERS.items():
        if parse(key) is not None:
            fence = kind is Kind.SEGMENT and size <= FENCE_SIZE_MAX
            return (Kind.FENCE if fence else kind), None
    return Kind.UNKNOWN, None


def grouped(keys: Iterable[str], sizes: Mapping[str, int]) -> tuple[Group, ...]:
    """By kind, in the order of ``Kind``; bytes of keys that ``sizes`` does not name count as none."""
    found: dict[Kind, list[int]] = {}
    for key in keys:
        size = sizes.get(key)
        kind = kind_of(key, FENCE_SIZE_MAX + 1 if size is None else size)[0]
        found.setdefault(kind, []).append(size or 0)
    return tuple(Group(kind.value, len(found[kind]), sum(found[kind])) for kind in Kind if kind in found)


def orphans(listed: Iterable[ObjectInfo], contract: Contract, now_ms: int) -> tuple[Orphan, ...]:
    """Which of the objects below ``_lancewal/`` nothing accounts for."""
    regions = frozenset(contract.regions)
    found = []
    for info in listed:
        kind, region = kind_of(info.key, info.size)
        if kind is Kind.UNKNOWN:
            found.append(Orphan(info.key, info.size, "no object of lancewal has such a key"))
        elif region is not None and region not in regions:
            reason = f"the table's contract does not name the region {region.name}"
            found.append(Orphan(info.key, info.size, reason))
        elif kind is Kind.PROBE and now_ms - info.modified_ms >= PROBE_KEPT_MS:
            found.append(Orphan(info.key, info.size, "a probe that a killed process left"))
    return tuple(sorted(found, key=lambda orphan: orphan.key))
