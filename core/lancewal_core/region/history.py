"""What is kept of a region: generations in its index, and in the history pages that its index left behind.

Guarantee: ``read_history`` names every generation above the trimmed boundary, without a gap up to the newest, or raises.
Pages are found by a listing, which is a hint; generations are numbered without holes, so a page that it leaves out shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lancewal_core import paths
from lancewal_core.errors import INDEX_LOST, StoreInconsistent
from lancewal_core.ids import Region
from lancewal_core.region.index import GenerationRecord, RegionIndex, decode_history
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.context import FlusherContext

_READS = 3
"""Times that index and pages are read to find them without a gap: another collector may trim in between."""


@dataclass(frozen=True, slots=True)
class History:
    """An index, and its pages by object key (those below the boundary that are not deleted yet included)."""

    index: RegionIndex
    pages: tuple[tuple[str, tuple[GenerationRecord, ...]], ...]

    @property
    def generations(self) -> tuple[GenerationRecord, ...]:
        """Everything above the trimmed boundary, oldest first."""
        known = {r.generation: r for _, page in self.pages for r in page}
        known |= {r.generation: r for r in self.index.generations}
        return tuple(r for _, r in sorted(known.items()) if r.generation > self.index.trimmed_generation)


def read_history(context: FlusherContext, region: Region, in_force: InForce) -> History | None:
    """None if nobody has claimed the region yet.

    ``StoreInconsistent`` where the index ends below ``in_force``, read before, or generations are missing.
    """
    merged = in_force.generation(region)
    gap = ""
    for _ in range(_READS):
        index = context.indexes.read(region)
        newest = None if index is None else index.newest
        if merged > (0 if newest is None else newest.generation):
            raise StoreInconsistent(
                f"region {region.name}: the index found ends below generation {merged}, which the table has merged; "
                f"{INDEX_LOST}",
                region=region.name,
            )
        if index is None or newest is None:
            return None
        history = History(index, tuple(sorted(_pages(context, region))))
        named = [r.generation for r in history.generations]
        if named == list(range(index.trimmed_generation + 1, newest.generation + 1)):
            return history
        gap = f"{len(named)} of the generations {index.trimmed_generation + 1} to {newest.generation}"
    raise StoreInconsistent(
        f"region {region.name}: index and history pages name {gap}; the listing of {paths.history_prefix(region)!r} is "
        "not complete, or a page is lost",
        region=region.name,
    )


def _pages(context: FlusherContext, region: Region) -> Iterator[tuple[str, tuple[GenerationRecord, ...]]]:
    for info in context.store.list(paths.history_prefix(region)):
        if paths.parse_history_page(info.key) is None:
            continue
        data = context.store.get(info.key)
        if data is not None:
            yield info.key, decode_history(data, info.key).generations
