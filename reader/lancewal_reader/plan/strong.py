"""The read plan: which table version, which flushes and which WAL entries make up one read.

V is the table version of the plan.  W(V) are its watermarks: per region the last generation and the position that it
contains.

Guarantees
 1. A strong plan has everything that was durable before it began.
 2. Per region the plan covers [start, cut) exactly once: the table up to W(V), then flushes, then WAL entries.  Nothing is
    skipped or joined over a gap.
 3. A plan is a pure value that pickles; it holds no rows.

Steps
 1. Pin V, read W(V).  At the same time check that the contract is still the newest, else ``ContractChanged``.  A contract
    that comes after this check shows in a region state, or in an entry, where it could do harm (step 2).
 2. At the same time read each region's newest state.  The delta has the generations above W(V): FLUSHED and MERGED ones by
    their flush, SEALED and OPEN ones by their WAL entries.  Each log is walked once for all its regions, to its tail.  A
    state that ends below W(V) was read before the merge, or is not the newest: step 5.  A region that was claimed under a
    newer contract may have records of keys that came through another region before.  Nothing orders the two:
    ``ContractChanged``.
 3. Prove the end of each walk.  Read the state of one region of that log again after the walk.  The end counts only if this
    state still keeps a generation of the log whose first segment is not above the end.  Then nothing from there on was
    trimmed.  A segment that is absent before another, or before the end of a generation that is not OPEN, is then lost:
    ``ObjectMissing``.
    At the same time as the state, ask a listing of the log for later segments.  If there are some, the walk goes on to the
    last of them.  If one of these is absent, the state is read once more, after the proof of that.  Whatever the listing
    shows, an end that lies before a generation begins does not count: every segment below that generation existed when the
    states were read.
 4. An entry whose ``first`` is not the position reached: the state read is out of date (the same process lost the region
    and owns it again, in the same log).
 5. If anything turns out stale or missing, plan again, up to ``PLANS_MAX`` times in all.  Then raise
    ``PlanRetriesExhausted``, which names the last reason.

An *eventual* plan stops after step 1 and reads the table alone.  Two conditions do not stop it, but then it claims no
position.  Either a user has restored the table, and nobody has decided what becomes of the rows merged since the
restored version.  Or a person has accepted a lower bound of the merged positions.

Rounds of requests on a table that was read before, for any number of regions and logs:
 - Step 1 takes three, or one if there is no newer version.
 - At the same time step 2 takes two if each state has moved by at most one version, and step 3 takes one.

As counted: 3 ("strong read of an open table behind a merge"), 3 ("strong read of an open table, nothing new").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from lancewal_core.errors import (
    ContractChanged,
    PlanRetriesExhausted,
    PlanStale,
    Refresh,
    VersionGone,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, Position, Region, Sequence, TableVersion
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import together
from lancewal_core.region.history import check_reaches
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.region.states import PageLook
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import PinnedTable, StoredTable
from lancewal_core.table.snapshots import snapshot_of
from lancewal_core.table.watermarks import NOTHING_MERGED, InForce
from lancewal_core.wal.log_end import confirm_end, lost_at_end, segment_lost
from lancewal_core.wal.segment import Segment, Trailer
from lancewal_core.wal.segment_cache import SegmentCache
from lancewal_core.wal.walk import Walk, walk_cached, walk_trailers
from lancewal_reader.plan.kept import Kept
from lancewal_reader.plan.log_entries import EntryRef, KnownEntries, LogEntries
from lancewal_reader.plan.python_collector import many_objects_made

T = TypeVar("T")
PLANS_MAX = 20
PAUSE_S = 0.02


@dataclass(frozen=True, slots=True)
class FlushRef:
    """One generation's part of a flush.  It also names the WAL entries to read instead if the flush's files are gone."""

    generation: Generation
    key: str
    first: Position
    next: Position
    log: LogId
    first_sequence: Sequence
    end_sequence: Sequence

    @staticmethod
    def of(record: GenerationRecord) -> FlushRef | None:
        """Return the part of a flush that holds a generation; None if the generation was not flushed."""
        if record.flush is None or record.next is None or record.end_sequence is None:
            return None
        return FlushRef(
            record.generation,
            record.flush,
            record.first,
            record.next,
            record.log,
            record.first_sequence,
            record.end_sequence,
        )


Source = FlushRef | EntryRef


@dataclass(frozen=True, slots=True)
class RegionDelta:
    """A region's flushes and entries that are not in the table version, oldest first, and the region's cut."""

    region: Region
    sources: tuple[Source, ...]
    cut: Position

    @property
    def start(self) -> Position:
        """First position that is not in the table version."""
        return self.sources[0].first if self.sources else self.cut


@dataclass(frozen=True, slots=True)
class OnBranch:
    """A version of a snapshot's branch that has the snapshot's rows, and the snapshot's receipt.  ``waiting``,
    ``unmerged`` and ``partitions`` are the fields of ``LeftOut``.
    """

    name: str
    version: TableVersion
    receipt: str
    waiting: int = 0
    unmerged: int = 0
    partitions: tuple[int, ...] = ()

    def pin(self, table: StoredTable) -> PinnedTable:
        """Open the version.  Raises ``VersionGone`` if the snapshot was dropped, even if another snapshot has its name
        now, because versions of both would have the same numbers.
        """
        pinned = table.branch(self.name).at(self.version)
        branch = table.find_branch(self.name)
        found = None if branch is None else snapshot_of(branch)
        if found is None or (found.branch_version, found.receipt) != (self.version, self.receipt):
            raise VersionGone(f"snapshot {self.name} was dropped since this read was planned")
        return pinned


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The state that a read returns: a table version, its watermarks, and the delta of each region that has a state.
    With ``branch``, all rows come from a snapshot's branch, which began at that version.
    """

    version: TableVersion
    in_force: InForce
    deltas: tuple[RegionDelta, ...]
    branch: OnBranch | None = None

    def pin(self, table: StoredTable) -> PinnedTable:
        """Open the version to be scanned.  Raises ``VersionGone`` if it was removed."""
        return table.at(self.version) if self.branch is None else self.branch.pin(table)

    @property
    def has_delta(self) -> bool:
        """Whether the read has unmerged records."""
        return any(delta.sources for delta in self.deltas)

    @property
    def cut(self) -> dict[Region, Position]:
        """The position of each region up to which the read sees records; empty if unknown (``plan_eventual``)."""
        return self.in_force.positions | {delta.region: delta.cut for delta in self.deltas}


@dataclass(frozen=True, slots=True)
class PlanContext(OpenedTable):
    """An open table, and the caches for planning its reads."""

    cache: SegmentCache | None
    """Cache of decoded segments.  Of segments that do not fit, or of all if this is None, planning reads the trailers
    and loading reads the wanted entries.
    """
    versions: Kept = field(default_factory=partial(Kept, 2), kw_only=True)
    """Cache of the two table versions that were opened most recently, by number.  A read uses the opened version of
    its plan.

    A read that is used again later opens its version again.  If a clean-up has removed it since, the read fails before
    its first row."""
    entries: KnownEntries = field(default_factory=KnownEntries, kw_only=True)
    """Cache of log entries: those of the logs that the newest strong plan has read."""

    def begin_walks(self) -> None:
        """Tell the segment cache that the reads of another plan begin."""
        if self.cache is not None:
            self.cache.next_plan()


def plan_eventual(context: PlanContext) -> ReadPlan:
    """Return the plan of the newest table version, without unmerged rows."""
    with point("plan.pin"):
        pinned, in_force = context.watermarks.newest_known()
        return ReadPlan(pinned.version, in_force or NOTHING_MERGED, ())


def plan_strong(context: PlanContext) -> ReadPlan:
    """Return a plan of all rows that are durable now."""
    return looked_again(context, lambda: _plan_once(context), "no consistent plan")


@many_objects_made()
def looked_again(context: PlanContext, once: Callable[[], T], failed: str) -> T:
    """Return the result of ``once``.  After a ``Refresh`` error, ``once`` is called again.  ``ContractChanged``,
    which is one too, is raised at once.

    After ``PLANS_MAX`` calls, raise ``PlanRetriesExhausted`` with a message that begins with ``failed``.
    """
    reason: Exception | None = None
    for attempt in range(PLANS_MAX):
        if attempt:
            context.clock.sleep(PAUSE_S * attempt)
        try:
            return once()
        except ContractChanged:
            raise
        except Refresh as error:
            reason = error
    raise PlanRetriesExhausted(f"{failed} after {PLANS_MAX} tries; the last reason: {reason}") from reason


def _plan_once(context: PlanContext) -> ReadPlan:
    (pinned, in_force), (indexes, walks) = together(
        context.tasks, lambda: pin_newest(context), lambda: _unmerged(context)
    )
    check_claims(context.contract, indexes)
    above = {region: unmerged_generations(region, indexes.get(region), in_force) for region in context.contract.regions}
    logs = context.entries.of(walks)
    check_entries(context.contract, logs)
    deltas = [_region_delta(region, above[region], in_force, logs, index) for region, index in sorted(indexes.items())]
    return ReadPlan(pinned.version, in_force, tuple(deltas))


def pin_newest(context: PlanContext) -> tuple[PinnedTable, InForce]:
    """Pin the newest version with its watermarks, and check that the contract is the newest (step 1)."""
    with point("plan.pin"):
        (pinned, in_force), _ = together(context.tasks, context.watermarks.newest, lambda: check_contract(context))
    context.versions.keep(pinned.version, pinned)
    return pinned, in_force


def _unmerged(context: PlanContext) -> tuple[dict[Region, RegionState], Mapping[LogId, Walk[Segment | Trailer]]]:
    """Read the region states, and walk the logs to proven ends (steps 2 and 3).  All generations count, since it is not
    known yet which of them are merged."""
    states = context.read_states()
    held = {region: state.generations for region, state in states.items()}
    walks = _walk_logs(context, held)
    return states, _prove_ends(context, held, walks)


def check_claims(contract: Contract, states: Mapping[Region, RegionState]) -> None:
    """Raise ``ContractChanged`` if a region was claimed under a newer contract.  Records under a contract that moves
    keys always follow such a claim."""
    newer = next((state for state in states.values() if state.contract_version > contract.version), None)
    if newer is not None:
        raise ContractChanged(
            f"region {newer.region.name} was claimed under contract version {newer.contract_version}, which is newer than "
            "the one that was read: open the table again",
            region=newer.region.name,
        )


def check_entries(contract: Contract, logs: Mapping[LogId, LogEntries]) -> None:
    """Raise ``ContractChanged`` if an entry in these logs names a newer contract.  A running process may follow changed
    columns without a new claim.
    """
    newest = max((entries.contract_version for entries in logs.values()), default=contract.version)
    if newest > contract.version:
        raise ContractChanged(
            f"entries name contract version {newest}, which is newer than {contract.version}: open the table again"
        )


def unmerged_generations(region: Region, state: RegionState | None, in_force: InForce) -> tuple[GenerationRecord, ...]:
    """Return the generations after the merged ones.  Raises ``StoreInconsistent`` or ``PlanStale`` if the state lacks
    some of them.
    """
    check_reaches(region, state, in_force)
    if state is None:
        return ()
    merged = in_force.generation(region)
    above = tuple(r for r in state.generations if r.generation > merged)
    expected = in_force.position(region)
    if above and (above[0].generation != merged + 1 or (expected is not None and above[0].first != expected)):
        raise region.error(PlanStale, f"generations after {merged} have left the region's state since")
    if state.trimmed_generation > merged:
        raise region.error(PlanStale, f"generations after {merged} were trimmed")
    return above


def check_contract(context: PlanContext) -> None:
    """Raise ``ContractChanged`` if there is a newer contract.  Regions that only the newer contract has would be
    missed.
    """
    newer = paths.contract_version(context.contract.version + 1, context.contract.making)
    if context.store.get(newer) is not None:
        raise ContractChanged(f"the table's contract has a newer version, {newer}: open the table again", object=newer)


def _walk_logs(
    context: PlanContext, held: Mapping[Region, Seq[GenerationRecord]]
) -> dict[LogId, Walk[Segment | Trailer]]:
    context.begin_walks()
    starts: dict[LogId, Sequence] = {}
    for records in held.values():
        for record in records:
            if record.state in (GenerationState.OPEN, GenerationState.SEALED):
                starts[record.log] = min(starts.get(record.log, record.first_sequence), record.first_sequence)
    logs = sorted(starts)
    walks = context.tasks.map(lambda log: walk_from(context, log, starts[log]), logs)
    return dict(zip(logs, walks, strict=True))


def walk_from(
    context: PlanContext, log: LogId, start: Sequence, *, before: Sequence | None = None
) -> Walk[Segment | Trailer]:
    """Read a log from ``start`` to ``before``, or to its end.  The result has whole segments where the cache has room
    for them, otherwise only their trailers.
    """
    if context.cache is None:
        return walk_trailers(context.store, context.tasks, log, start, before=before)
    return walk_cached(context.store, context.tasks, log, start, context.cache, before=before)


def _region_delta(
    region: Region,
    records: Seq[GenerationRecord],
    in_force: InForce,
    logs: Mapping[LogId, LogEntries],
    state: RegionState,
) -> RegionDelta:
    sources: list[Source] = []
    position = in_force.position(region)
    for record in records:
        position = record.first
        flushed = FlushRef.of(record)
        if flushed is not None:
            sources.append(flushed)
            position = flushed.next
            continue
        refs, chained = logs[record.log].of_generation(region, record)
        if refs and not (chained and refs[0].first == position):  # Step 4
            raise _gap(region, record, refs)
        if refs:
            sources += refs
            position = refs[-1].next
        if record.next is not None and position != record.next:
            log = logs[record.log]
            if not log.fenced and record.end_sequence is not None and log.end < record.end_sequence:
                raise segment_lost(
                    record.log, log.end, f"generation {record.generation} of region {region.name} reaches beyond it"
                )
            raise region.error(
                PlanStale, f"generation {record.generation} ends at {record.next}, its log at {position}"
            )
    if position is None:
        position = state.generations[0].first if state.generations else Position(0)
    return RegionDelta(region, tuple(sources), position)


def _gap(region: Region, record: GenerationRecord, refs: Seq[EntryRef]) -> PlanStale:
    expected = record.first
    for ref in refs:
        if ref.first != expected:
            break
        expected = ref.next
    return region.error(PlanStale, f"log {record.log} continues at {ref.first}, expected {expected}")


def _prove_ends(
    context: PlanContext,
    held: Mapping[Region, Seq[GenerationRecord]],
    walks: Mapping[LogId, Walk[Segment | Trailer]],
) -> dict[LogId, Walk[Segment | Trailer]]:
    """Prove the end of each walk (step 3), with one state read and one listing per log, all at the same time.  Return
    the walks, of which some may have become longer.  ``held``: all generations of the states, merged ones too."""
    if not walks:
        return {}
    # The region at whose first segment the walk of the log began.  The walk may have ended before others began.
    first: dict[LogId, tuple[Sequence, Region]] = {}
    begins: dict[LogId, Sequence] = {}
    for region, records in held.items():
        for record in records:
            begins[record.log] = max(begins.get(record.log, record.first_sequence), record.first_sequence)
            if record.state in (GenerationState.OPEN, GenerationState.SEALED):
                begun = record.first_sequence, region
                first[record.log] = min(first.get(record.log, begun), begun)
    keepers = {log: first[log][1] for log in walks}
    states: dict[Region, RegionState] = {}
    proven: dict[LogId, Walk[Segment | Trailer]] = {}

    def look(at: Walk[Segment | Trailer] | None) -> None:
        if at is None:
            states.update(context.states.read(sorted(set(keepers.values())), PageLook.AGAIN))
        else:
            proven[at.log] = confirm_end(context.store, at, partial(walk_from, context, at.log))

    context.tasks.map(look, [None, *walks.values()])
    for log, walked in walks.items():
        _check_kept(states.get(keepers[log]), walked)
        on = proven[log]
        lost = lost_at_end(on, begins[log])
        if lost is not None:
            _check_kept(context.states.read([keepers[log]]).get(keepers[log]), on)
            raise lost
    return proven


def _check_kept(state: RegionState | None, walked: Walk[Segment | Trailer]) -> None:
    """Raise ``PlanStale`` unless the state keeps a generation of the log that begins at or before the walk's end.  The
    state was read after that end was found."""
    kept = () if state is None else state.generations
    if not any(r.log == walked.log and r.first_sequence <= walked.end for r in kept):
        raise PlanStale(
            f"log {walked.log}: segment {walked.end} is absent. Garbage collection may have trimmed it since the read "
            "was planned: plan the read again",
            log=walked.log,
        )
