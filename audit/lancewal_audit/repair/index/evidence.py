"""Evidence for a region's state when its newest versions are lost: older versions, the watermark, flushes."""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_audit.repair.context import RepairContext
from lancewal_core.errors import Corrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Position, Region
from lancewal_core.region.flushes.manifest import FlushedGeneration, read_flush
from lancewal_core.region.pages.state_page import StatePage, decode_page
from lancewal_core.region.state import RegionState
from lancewal_core.region.states import page_family, state_in
from lancewal_core.table.watermarks import Watermark


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of the region's state page that the store lists."""

    newest: int
    """Number of the newest version; 0 if none is listed."""
    sound: tuple[int, RegionState] | None
    """Number of the newest version in which the region's state can be read, and this state; None if there is none."""
    damaged: tuple[str, ...]
    """Texts of the errors of the versions above ``sound``, newest first."""
    page: StatePage | None
    """The newest version of the page; None if it cannot be read.  Single records in it may be damaged."""


def versions_of(context: RepairContext, region: Region) -> Versions:
    family = page_family(context.contract.page_of(region))
    listed = sorted({v for i in context.store.list(family.prefix) if (v := family.parse(i.key)) is not None})
    newest = listed[-1] if listed else 0
    damaged: list[str] = []
    page: StatePage | None = None
    for version in reversed(listed):
        key = family.key(version)
        try:
            data = context.store.get(key)
            if data is None:
                continue
            found = decode_page(data, key)
            page = found if version == newest else page
            state = state_in(found, region, key)
        except Corrupt as error:
            damaged.append(str(error))
            continue
        return Versions(newest, None if state is None else (version, state), tuple(damaged), page)
    return Versions(newest, None, tuple(damaged), page)


def finished_mark(context: RepairContext, region: Region) -> Watermark:
    """Return the region's watermark at the newest finished merge.  A merge that is not finished may still need the
    generations that it merged."""
    _, in_force = context.watermarks.newest()
    finished = in_force.version == 0 or in_force.merge is None
    if not finished and context.store.get(paths.merge_finished(in_force.version, context.contract.making)) is None:
        in_force = context.watermarks.at(in_force.version - 1)
    return in_force.regions.get(region, Watermark(Generation(0), Position(0)))


def flushes_of(context: RepairContext, region: Region) -> dict[int, list[FlushedGeneration]]:
    """Return the region's flushes by generation, the longest first, without those that cannot be decoded."""
    manifests = [info.key for info in context.store.list(paths.FLUSHES) if paths.is_flush_manifest(info.key)]

    def read(key: str) -> list[FlushedGeneration]:
        try:
            return [flushed for flushed in read_flush(context.store, key).generations if flushed.region == region]
        except Corrupt:
            return []

    found: dict[int, list[FlushedGeneration]] = {}
    for flushes in context.tasks.map(read, manifests) if manifests else []:
        for flushed in flushes:
            found.setdefault(flushed.generation, []).append(flushed)
    return {g: sorted(some, key=lambda s: -s.next) for g, some in found.items()}
