"""Find how far a table is merged, and which generations wait to be merged: for metrics, status and reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lancewal_core.errors import Corrupt
from lancewal_core.names.ids import Generation, Position, Region, TableVersion
from lancewal_core.region.flush_files import read_flushes
from lancewal_core.region.flushes.manifest import Flush
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.table.protocol import StoredTable, TransactionInfo
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.service.round import RoundReport


@dataclass(frozen=True, slots=True)
class Backlog:
    """Generations that are not merged yet.

    ``waiting``: for each region of the contract the generations above the watermark that are no longer OPEN, oldest
    first.  ``rows``: for each region the number of changed keys in those that are flushed.  Regions with a damaged
    state are left out.
    """

    version: TableVersion
    in_force: InForce
    waiting: Mapping[Region, tuple[GenerationRecord, ...]]
    rows: Mapping[Region, int]
    since_ms: Mapping[tuple[Region, Generation], int] = field(default_factory=dict)
    """Time (ms since 1970) when each waiting generation was flushed, or sealed if it is not flushed.  The region's
    state has this time, so it survives a restart.  If a repair has rebuilt the state, it is the time when this
    process first saw the generation."""
    merged_ms: Mapping[Region, int] = field(default_factory=dict)
    """Time (ms since 1970) when the newest merged generation of each region was sealed.  Records that were durable
    then are in the table.  A region is missing if its state no longer has this generation."""
    fell: Mapping[Region, Position] = field(default_factory=dict)
    """New merged position of each partition where it is lower than before.  This must never happen
    (``MergedPositions``)."""
    states: Mapping[Region, RegionState] = field(default_factory=dict)
    older_rows: int = 0
    """Number of changed keys in waiting flushes, and of waiting rows of keys in conflict, that are stored with older
    columns than the contract's.  Rows of keys in conflict are counted only if a merge has read them."""

    @property
    def waits_since_ms(self) -> dict[Region, int]:
        """Time (ms since 1970) since which the oldest waiting generation of each region waits."""
        oldest = {region: records[0] for region, records in self.waiting.items() if records}
        return {region: self.since_ms[region, record.generation] for region, record in oldest.items()}


@dataclass(slots=True)
class MergedPositions:
    """Check that the merged position of a partition never decreases.  No merge decreases it, so a decrease means a
    bug.

    A restore of the table, and a person's decision after it, may decrease positions.  A decrease is therefore ignored
    in three cases.  A version since the last check is a restore, or no merge has set the watermarks, or only a lower
    bound of them is known.
    """

    _version: int = 0
    _next: Mapping[Region, Position] = field(default_factory=dict)

    def look(self, table: StoredTable, in_force: InForce) -> dict[Region, Position]:
        """Compare the watermarks with those of the previous call.  Return the new position of each region whose
        merged position has decreased.
        """
        before, since = self._next, self._version
        self._next = in_force.positions
        self._version = in_force.version
        fell = {region: at for region, at in self._next.items() if region in before and at < before[region]}
        if not fell or in_force.merge is None or not in_force.exact or self._restored(table, since):
            return {}
        return fell

    def _restored(self, table: StoredTable, since: int) -> bool:
        """Whether a version above ``since`` is a restore of the table, or its transaction cannot be read."""
        made = [table.transaction(version) for version in range(since + 1, self._version + 1)]
        return not all(isinstance(info, TransactionInfo) and info.operation != "Restore" for info in made)


class BacklogReader:
    """Reader of backlogs.  Manifests of flushes never change, so each is read once."""

    def __init__(self, context: FlusherContext) -> None:
        self.context = context
        """Context with the contract that the flusher uses now."""
        self._merged = MergedPositions()
        self._flushes: dict[str, Flush] = {}
        self._since_ms: Mapping[tuple[Region, Generation], int] = {}

    def after(self, report: RoundReport) -> Backlog:
        """Return the backlog after a round.  If the round ended because nothing was left to merge, its findings are
        used.  Otherwise the newest state is read.
        """
        if report.left is None:
            return self.now()
        left = report.left
        unknown = [region for region in left.left if region not in left.states]
        return self._backlog(left.version, left.in_force, left.states, unknown)

    def now(self) -> Backlog:
        """Read the newest state, and return the backlog."""
        pinned, in_force = self.context.watermarks.newest()
        sound = self.context.read_sound_states()
        return self._backlog(pinned.version, in_force, sound.states, sound.damaged)

    def _backlog(
        self,
        version: TableVersion,
        in_force: InForce,
        states: Mapping[Region, RegionState],
        damaged: Collection[Region],
    ) -> Backlog:
        regions = [region for region in self.context.contract.regions if region not in damaged]
        waiting = {region: _ended(states[region], in_force) if region in states else () for region in regions}
        flushes = self._read({r.flush for records in waiting.values() for r in records if r.flush is not None})
        rows = {region: sum(_rows(flushes, region, r) for r in records) for region, records in waiting.items()}
        now_ms, known = self.context.clock.now_ms(), self._since_ms
        self._since_ms = {
            (region, r.generation): r.flushed_at_ms or r.sealed_at_ms or known.get((region, r.generation), now_ms)
            for region, records in waiting.items()
            for r in records
        }
        newest = {
            region: record
            for region in regions
            for record in (states[region].generations if region in states else ())
            if record.generation == in_force.generation(region)
        }
        return Backlog(
            version,
            in_force,
            waiting,
            rows,
            self._since_ms,
            {of: r.sealed_at_ms for of, r in newest.items() if r.sealed_at_ms is not None},
            self._merged.look(self.context.table, in_force),
            states,
            self._older(flushes, waiting, in_force),
        )

    def _older(
        self,
        flushes: Mapping[str, Flush | Corrupt],
        waiting: Mapping[Region, tuple[GenerationRecord, ...]],
        in_force: InForce,
    ) -> int:
        changed = self.context.contract.columns_version
        older = {key: f for key, f in flushes.items() if isinstance(f, Flush) and f.contract_version < changed}
        rows = sum(_rows(older, region, record) for region, records in waiting.items() for record in records)
        kept = (content for ref, content in self.context.conflicts_kept if ref == in_force.conflicts)
        return rows + sum(int(c.waiting.num_rows) for c in kept if c.older_columns or c.schema != self.context.rows)

    def _read(self, named: Collection[str]) -> Mapping[str, Flush | Corrupt]:
        """Return the named flushes.  Read those that are not cached, and remove all others from the cache."""
        known = {key: self._flushes[key] for key in named if key in self._flushes}
        read = read_flushes(self.context.store, self.context.tasks, [key for key in named if key not in known])
        self._flushes = known | {key: flush for key, flush in read.items() if isinstance(flush, Flush)}
        return {**known, **read}


def _ended(state: RegionState, in_force: InForce) -> tuple[GenerationRecord, ...]:
    merged = in_force.generation(state.region)
    return tuple(r for r in state.generations if r.generation > merged and r.state is not GenerationState.OPEN)


def _rows(flushes: Mapping[str, Flush | Corrupt], region: Region, record: GenerationRecord) -> int:
    flush = flushes.get(record.flush or "")
    if isinstance(flush, Flush):
        with suppress(Corrupt):
            return flush.generation_of(region, record.generation).changes
    return 0  # SEALED; or merged and trimmed meanwhile, rebuilt by the next merge, or damaged: the round says so
