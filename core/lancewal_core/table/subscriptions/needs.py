"""Needs of a read at a receipt: generations and table versions.  Checks that they exist, and that no round of garbage
collection may be about to delete them.

A round of garbage collection reads its clock at its beginning.  It reads subscriptions only after it has decided what
is older than its window (``holding``).  So a round that does not see a subscription has decided before the
subscription was written.  It deletes only what was older than its window then.  Therefore the writer of a
subscription checks afterwards how old its needs are.  If none is older than its window, nor will be within
``MARGIN_MS``, no round can have decided to delete it.

The ages come from other clocks than the writer's.  ``MARGIN_MS`` is the most by which two clocks may differ.

A round deletes everything of a former topic that no subscription holds.  So only a subscription that has held it all
the time may need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lancewal_core.errors import OutsideHistoryWindow, PlanStale, Refresh, VersionGone
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Position, Region, TableVersion
from lancewal_core.process.tasks import together
from lancewal_core.region.history import generation_behind
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import version_exists
from lancewal_core.table.subscriptions.stored import StoredSubscription
from lancewal_core.table.watermarks import InForce, Watermark

MARGIN_MS = 5 * 60 * 1000
"""Largest difference between the clocks of two processes, in milliseconds."""
VERSION_WINDOW_MIN_MS = 3600 * 1000
"""Shortest version window in milliseconds.  It is longer than a read plan, a merge or a compaction takes."""
NO_MARK = Watermark(Generation(0), Position(0))
"""Watermark of a region of which nothing was merged."""
_LOOKS = 5
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits that simulations shorten: ``MARGIN_MS`` and ``VERSION_WINDOW_MIN_MS``."""

    margin_ms: int = MARGIN_MS
    version_window_min_ms: int = VERSION_WINDOW_MIN_MS


def version_window_ms(contract: Contract, least: int = VERSION_WINDOW_MIN_MS) -> int:
    """Return for how many milliseconds garbage collection keeps a table version that is not the newest.  ``least``: the
    shortest such time."""
    return max(contract.version_window_s * 1000, contract.history_window_s * 1000, least)


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of a read at a receipt: all generations after ``merged``, and the table versions from ``versions_from``
    on."""

    receipt: str
    """Text of the receipt."""
    version: TableVersion
    """Table version that the read pins."""
    versions_from: TableVersion
    """Lowest table version that the plan of the read may need."""
    merged: Mapping[Region, Watermark] = field(default_factory=dict)
    """Watermarks of ``version``.  The read needs all generations of a region that is left out."""

    @staticmethod
    def of(stored: StoredSubscription) -> Needs:
        return Needs(stored.receipt, TableVersion(stored.version), TableVersion(stored.versions_from), stored.marks)


@dataclass(frozen=True, slots=True)
class Age:
    """Ages of the generations and versions that a read needs.  Times are in milliseconds since 1970."""

    merged_ms: int | None
    """Time when the first needed generation was merged; None: none was."""
    superseded_ms: int | None
    """Time when the lowest needed version was replaced by the next one.  None: garbage collection removes none of the
    needed versions now, whatever their ages."""
    former_topic: bool = False
    """Whether log entries of a former topic are needed, which only subscriptions keep."""

    def within(self, contract: Contract, now_ms: int, bounds: Bounds) -> bool:
        """Whether the needed objects are within the windows, and stay so for the margin.  Then no garbage collection
        round deletes them, even without a subscription."""
        merged_ms, superseded_ms = self.merged_ms, self.superseded_ms
        young = merged_ms is None or now_ms + bounds.margin_ms - merged_ms < contract.history_window_s * 1000
        window = version_window_ms(contract, bounds.version_window_min_ms)
        young = young and not self.former_topic
        return young and (superseded_ms is None or now_ms + bounds.margin_ms - superseded_ms < window)

    def held(self, contract: Contract, now_ms: int, bounds: Bounds) -> bool:
        """Whether a subscription that needs these objects holds them now, and still will after the margin."""
        merged_ms = self.merged_ms
        return merged_ms is None or now_ms + bounds.margin_ms - merged_ms < contract.subscription_hold_s_max * 1000


def look(opened: OpenedTable, needs: Needs) -> Age:
    """Return the ages of the needed objects.

    Raise ``OutsideHistoryWindow`` if needed generations are trimmed, and ``VersionGone`` if the table version was
    removed.
    """
    regions = opened.contract.regions
    for attempt in range(_LOOKS):
        try:
            merged, (superseded_ms, in_force) = together(
                opened.tasks, lambda: _first_merged(opened, needs, regions), lambda: _superseded(opened, needs)
            )
            former = in_force.regions.keys() - set(regions)
            former_needed = sorted(r for r in former if is_behind(needs.merged, in_force, r))
            if former_needed:
                merged += _first_merged(opened, needs, former_needed)
            return Age(min(merged, default=None), superseded_ms, bool(former_needed))
        except Refresh:
            if attempt == _LOOKS - 1:
                raise
        opened.clock.sleep(_PAUSE_S * 2**attempt)
    raise AssertionError("not reached")


def merged_ms_of(record: GenerationRecord, *, former: bool) -> int | None:
    """Return when a generation was merged, in milliseconds since 1970; None if it was not, or if the time is not known.

    ``former``: the generation is of a former topic.  Then it counts as merged in any state, since it was flushed, or
    else sealed.
    """
    if record.state is GenerationState.MERGED:
        return record.merged_at_ms
    return record.flushed_at_ms or record.sealed_at_ms if former else None


def is_behind(marks: Mapping[Region, Watermark], in_force: InForce, region: Region) -> bool:
    """Return whether ``in_force``, the newest watermarks, have a newer generation of the region than ``marks``."""
    return in_force.generation(region) > marks.get(region, NO_MARK).generation


def _first_merged(opened: OpenedTable, needs: Needs, regions: Sequence[Region]) -> list[int]:
    """Return when the first needed generation of each region was merged, in milliseconds since 1970.  Regions without
    such a generation are left out."""
    states, known = opened.states.read(regions), set(opened.contract.regions)

    def merged_ms(region: Region) -> int | None:
        mark = needs.merged.get(region, NO_MARK)
        found = generation_behind(opened, region, states.get(region), mark.generation, mark.next)
        if found is not None and region not in known:
            _check_log(opened, region, found, needs)
        return None if found is None else merged_ms_of(found, former=region not in known)

    found = opened.tasks.map(merged_ms, regions)
    return [at for at in found if at is not None]


def _check_log(opened: OpenedTable, region: Region, record: GenerationRecord, needs: Needs) -> None:
    """Raise ``OutsideHistoryWindow`` if the log of a former topic's generation was deleted, which no region state
    shows."""
    first = paths.wal_segment(record.log, record.first_sequence)
    listed = opened.store.list(paths.log_prefix(record.log), limit=1)
    if record.first != record.next and min((info.key for info in listed), default=first + "~") > first:
        raise OutsideHistoryWindow(
            f"the log of the former topic's partition {region.name!r}, from generation {record.generation} on, was deleted, "
            "since no subscription held it. Begin at a newer point",
            version=needs.version,
        )


def _superseded(opened: OpenedTable, needs: Needs) -> tuple[int | None, InForce]:
    """Return ``Age.superseded_ms``, and the newest watermarks."""
    newest, in_force = opened.watermarks.newest()
    if newest.version < needs.version:
        raise PlanStale(
            f"the store shows table version {newest.version} as the newest, although version {needs.version} exists"
        )
    if not version_exists(opened.table, needs.version):
        raise VersionGone(f"table version {needs.version} was removed", version=needs.version)
    if not opened.contract.rows_tell_partition or in_force.version <= needs.versions_from:
        return None, in_force  # garbage collection removes no version then
    try:
        return opened.table.commit_time(needs.versions_from + 1), in_force
    except VersionGone:
        stored = opened.table.stored_versions()
        times = (ms for version, ms in stored.items() if version > needs.versions_from)
        return min(times, default=None), in_force


def too_old(needs: Needs, contract: Contract) -> OutsideHistoryWindow:
    """Return the error for a receipt whose needs garbage collection may be deleting."""
    return OutsideHistoryWindow(
        f"the changes after table version {needs.version} are outside the table's windows, or nearly: "
        f"{contract.history_window_s} s for log entries, {contract.version_window_s} s for versions. "
        "Garbage collection may be deleting them, and no subscription has kept them. Begin at a newer point",
        version=needs.version,
    )
