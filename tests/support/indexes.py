"""The index of one region, as a process that has just started reads it, and damage to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lancewal_core.names.ids import Making, Page, Region
from lancewal_core.process.clock import Clock
from lancewal_core.region.pages.state_page import decode_page, encode_page
from lancewal_core.region.state import RegionState
from lancewal_core.region.states import RegionStates, page_family
from lancewal_core.store.object_store import ObjectStore

REGIONS_PER_PAGE = 128
"""Of tables that tests make, but for those that say otherwise."""


def newest_state(
    store: ObjectStore, clock: Clock, region: Region, regions_per_page: int = REGIONS_PER_PAGE
) -> RegionState | None:
    return RegionStates(store, clock, regions_per_page, None).read([region]).get(region)


def page_versions(
    store: ObjectStore,
    folder: str,
    region: Region,
    regions_per_page: int = REGIONS_PER_PAGE,
    making: Making | None = None,
) -> list[Path]:
    """The objects of the page that has the region, the newest first."""
    family = page_family(Page.of(region, regions_per_page, making))
    listed = sorted({v for info in store.list(family.prefix) if (v := family.parse(info.key)) is not None})
    return [Path(folder) / family.key(version) for version in reversed(listed)]


def flip_record(path: Path, partition: int) -> None:
    """Change bytes of one region's record in a page."""
    path.write_bytes(with_flipped_record(path.read_bytes(), partition))


def with_flipped_record(page_bytes: bytes, partition: int) -> bytes:
    """The page as it is when bytes of one region's record have changed."""
    page = decode_page(page_bytes, "there")
    record = page.records[partition]
    data = bytearray(record.data)
    for at in range(len(data) // 2, min(len(data), len(data) // 2 + 8)):
        data[at] ^= 0xFF
    return encode_page(page.with_records({partition: replace(record, data=bytes(data))}))
