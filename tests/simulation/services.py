"""What the processes of a world do: each function is the main loop of one, and calls lancewal's own modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TypeVar

from lancewal_core.errors import ContractMismatch, MergedPositionUnknown, ObjectMissing, TableRestored, VersionGone
from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.names.ids import Region
from lancewal_core.table.control import POLL_S, ControlReader, ControlWatch, Service
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext, by_newest_contract, with_newer_contract
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.garbage.table_versions import VersionsSeen
from lancewal_flusher.merge.merge import NothingToMerge
from lancewal_flusher.merge.plan import MergeLimits, unmerged
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.tasks.runner import ThreadRunner
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_flusher.upkeep.indexes import extend_indexes
from lancewal_flusher.upkeep.widening import WideningState, widen_next
from lancewal_ingest.append.prepare import Preparer
from tests.simulation.checker import require
from tests.simulation.draws import drawn_key, drawn_s
from tests.simulation.feeds import FeedReading
from tests.simulation.ingest_side import ingest_worker
from tests.simulation.reading import Reading
from tests.simulation.world import PASSING, Process, World
from tests.support.stored_parts import StoredParts

Body = Callable[[World, Process], None]
T = TypeVar("T")


def serve(world: World, group: str, body: Body) -> None:
    """Spawn a process that begins again after a passing fault, or one that names what is lost."""

    def run() -> None:
        while True:
            process = world.process(group)
            try:
                body(world, process)
            except (*PASSING, ObjectMissing) as error:
                lost = world.losses.named_by(error)
                if not lost and isinstance(error, ObjectMissing):
                    raise
                said = "a segment is lost" if lost else type(error).__name__
                world.note(f"{group.rstrip('0123456789')} restarts: {said}")
                world.group.expel(process.name)
                world.log(f"{process.name} restarts: {error}")
            world.scheduler.sleep(0.1)

    world.scheduler.spawn(group, run)


def member(world: World, process: Process) -> None:
    """An ingest service: steps, and now and then a clean shutdown."""
    worker, source = ingest_worker(world, process)
    world.log(f"{process.name} starts")
    control = None
    if world.settings.operator:
        control = ControlWatch(
            ControlReader(process.store, process.clock, Service.INGEST, world.contract.making),
            process.tasks,
            process.clock,
        )
    worker.subscribe()
    life = process.rng.choice([10**9, 40, 200, 1000])
    while life:
        if world.columns is not None and process.rng.random() < 0.02:  # else a claim or a record meets a newer contract
            worker.take_up(Preparer(world.contract, None), worker.terms.dead_letters)
        held = control is not None and control.look() is not None
        worker.hold(held)
        before = source.delivered
        worker.step(0.1)
        require(not held or source.delivered == before, f"{process.name} consumes, though it is paused")
        if held:
            world.note("ingest turns, paused")
        life -= 1
        require(not worker.stopped, f"{process.name}: partitions stopped:", worker.stopped)
    world.note("drained" if worker.drain(2.0) else "not drained in time")
    worker.tell_group()
    source.close()


def producer(world: World) -> None:
    """Sends the world's records, in bursts."""
    rng = Random(f"{world.seed}/producer")
    left = world.settings.records
    while left:
        for _ in range(min(left, rng.randint(1, world.settings.burst_records))):
            world.produce(rng, drawn_key(rng, world.settings.keys, world.settings.skew))
            left -= 1
            if rng.random() < 0.2:
                world.scheduler.switch("produced")
        world.scheduler.sleep(drawn_s(rng, world.settings.burst_s))
    world.produced = True


def flusher_context(world: World, process: Process) -> FlusherContext:
    keys = KeyIndex(KeyCatalogs(process.store, process.clock, world.contract.making), StoredParts(process.store))
    runner = ThreadRunner(process.table, process.tasks)
    return FlusherContext(*process.opened(world.contract).parts, keys, runner, process.new_id)


@dataclass(slots=True)
class TakingUp:
    """The context of a flusher, with the newest contract that it has met."""

    context: FlusherContext

    def act(self, act: Callable[[FlusherContext], T]) -> T:
        """Act by it, as the service does."""

        def by(context: FlusherContext) -> T:
            self.context = context
            return act(context)

        return by_newest_contract(self.context, by)


@dataclass(slots=True)
class PutOff:
    """What one flusher has put off: a generation waits ``defer_s`` at most."""

    defer_s: float
    since: dict[tuple[Region, int], float] = field(default_factory=dict)
    """When the round was over in which a generation was first put off."""

    def look(self, left: NothingToMerge | None, began: float, ended: float) -> bool:
        """Whether the round put something off; ``Violation`` where that had waited for too long when the round began."""
        if left is None or not left.deferred:
            self.since = {}
            return False
        waiting = [(region, r.generation) for region, rs in unmerged(left.states, left.in_force).items() for r in rs]
        self.since = {key: self.since.get(key, ended) for key in waiting}
        waited_s = began - min(self.since.values())
        require(waited_s < self.defer_s, "a merge is put off after", waited_s, "seconds, allowed are", self.defer_s)
        return True


def _control(world: World, process: Process) -> ControlReader | None:
    if not world.settings.operator:
        return None
    control = ControlReader(process.store, process.clock, Service.FLUSHER, world.contract.making)
    control.read_or_raise()
    return control


def _paused(world: World, control: ControlReader | None) -> bool:
    """Whether an operator wants nothing to begin; waits for the time after which a service asks again."""
    if control is None or control.read() is None:
        return False
    world.note("flusher waits, paused")
    world.scheduler.sleep(POLL_S)
    return True


def flusher(world: World, process: Process) -> None:
    """A flusher service: rounds."""
    taking_up = TakingUp(flusher_context(world, process))
    control = _control(world, process)
    limits = MergeLimits(
        adopt_rows=process.rng.choice([1, 5, 50]),
        adopt_small_max=process.rng.choice([0, 1, 16]),
        combine_changes=process.rng.choice([10, 1000]),
        memory_bytes=process.rng.choice([1 << 30, 1 << 30, 12_000]),
        defer_s=process.rng.choice([0.0, 0.0, 0.5, 3.0]),
        in_place_rows=1,
    )
    state, put_off = RoundState(), PutOff(limits.defer_s)
    widening = WideningState()
    while True:
        if _paused(world, control):
            continue
        if world.columns is not None:
            _widen(world, process, taking_up, widening)
        began = process.clock.monotonic()
        one_merge = process.rng.choice([1, 100]) == 1
        try:
            report = taking_up.act(
                partial(run_round, limits=limits, state=state, sealed_grace_s=1.0, enough=partial(bool, one_merge))
            )
        except (*PASSING, VersionGone, ObjectMissing, MergedPositionUnknown) as error:  # a clean-up came in between
            world.note(f"round: {type(error).__name__}")
            world.log(f"{process.name} round: {type(error).__name__} {error}")
        except TableRestored:
            _wait_for_a_person(world, "round")
        except ContractMismatch as error:
            world.note("round: ContractMismatch")
            world.check_misfits(error)
        else:
            for merge in report.merges:
                world.note("merge")
                if merge.version > merge.read_version + 1:
                    world.note("merge rebased")
            world.counts["refused"] = world.counts.get("refused", 0) + len(report.refused)
            if report.held:
                world.note("region left where it is damaged")
                world.log(f"{process.name} round: left {report.held}")
            for done in report.finished:
                if done.rows_hidden or done.fragments_rebuilt:
                    world.note("follow-up")
            if put_off.look(report.left, began, process.clock.monotonic()):
                world.note("merge put off")
        _rest(world, process, [0.05, 0.3])


def _widen(world: World, process: Process, taking_up: TakingUp, state: WideningState) -> None:
    """A turn of widening, beside the rounds."""
    turn_s = process.rng.choice([0.0, 60.0])
    try:
        newer = with_newer_contract(taking_up.context)
        taking_up.context = newer or taking_up.context
        result = taking_up.act(partial(widen_next, state=state, turn_s=turn_s))
    except (*PASSING, VersionGone, ObjectMissing, MergedPositionUnknown, TableRestored) as error:
        world.note(f"widening: {type(error).__name__}")
    except ContractMismatch as error:
        world.note("widening: ContractMismatch")
        world.check_misfits(error)
    else:
        if result is not None:
            world.note(f"widening: {type(result).__name__}")


def collector(world: World, process: Process) -> None:
    """Garbage collection rounds."""
    context = flusher_context(world, process)
    control = _control(world, process)
    state = GarbageState(versions=VersionsSeen(every_s=1.0, window_min_ms=2000))
    while True:
        if _paused(world, control):
            continue
        try:
            report = collect_garbage(context, state)
            world.counts["objects deleted"] = world.counts.get("objects deleted", 0) + len(report.deleted_keys)
            for _ in report.expired_versions:
                world.note("version expired")
            world.counts["trims"] = world.counts.get("trims", 0) + len(report.trimmed)
        except (*PASSING, MergedPositionUnknown) as error:  # a clean-up came between a commit and its record
            world.note(f"garbage: {type(error).__name__}")
        except TableRestored:
            _wait_for_a_person(world, "garbage")
        _rest(world, process, [0.1, 0.5])


def _rest(world: World, process: Process, seconds: Sequence[float]) -> None:
    """Between two rounds."""
    rest_s = world.settings.rest_s
    world.scheduler.sleep(process.rng.choice(seconds) if rest_s is None else rest_s)


def _wait_for_a_person(world: World, act: str) -> None:
    """The service ends, and is started again by its supervisor, in vain."""
    require(world.restored is not None, f"{act}: nobody has restored the table")
    world.note(f"{act}: TableRestored")
    world.scheduler.sleep(5.0)


def compactor(world: World, process: Process) -> None:
    """Compaction and indexes: as the service between its merges, or as ``lancewal compact`` beside them."""
    taking_up = TakingUp(flusher_context(world, process))
    limits = CompactionLimits(
        fragments_min=2, growth=1.0, deleted_share=0.2, round_bytes=process.rng.choice([400, 10**9])
    )
    sizes = FileSizes()
    while True:
        try:
            result = taking_up.act(
                partial(compact_next, limits=limits, sizes=sizes, with_sentinel=process.rng.random() < 0.5)
            )
            if isinstance(result, Compacted):
                world.note("compaction")
            elif isinstance(result, Refused):
                world.note("compaction refused")
            extended = taking_up.act(partial(extend_indexes, limits=IndexLimits(), at_once=process.rng.random() < 0.5))
            world.counts["index extended"] = world.counts.get("index extended", 0) + len(extended)
        except (*PASSING, TableRestored, VersionGone, MergedPositionUnknown) as error:
            world.note(f"compaction: {type(error).__name__}")
        except ContractMismatch as error:
            world.note("compaction: ContractMismatch")
            world.check_misfits(error)
        world.scheduler.sleep(process.rng.choice([0.05, 0.3]))


def reader(world: World, process: Process) -> None:
    """A reader that looks again and again, and now and then reads again at an earlier receipt."""
    reading, feeds = Reading(world, process), FeedReading(world, process)
    for _ in range(process.rng.choice([3, 30])):
        if world.reads and process.rng.random() < 0.3:
            reading.read_again(*process.rng.choice(world.reads))
            feeds.some(process.rng)
        try:
            reading.read("strong" if process.rng.random() < 0.8 else "eventual")
        except (*PASSING, VersionGone, ObjectMissing) as error:
            lost = world.losses.named_by(error)
            require(lost or not isinstance(error, ObjectMissing), f"{process.name}: nothing is lost, but", error)
            world.note("read: a segment is lost" if lost else f"read: {type(error).__name__}")
            world.log(f"{process.name} could not read: {error}")
        except TableRestored:
            require(world.restored is not None, f"{process.name}: nobody has restored the table")
            world.note("read: TableRestored")
        except ContractMismatch as error:
            world.note("read: ContractMismatch")
            world.check_misfits(error)
        world.scheduler.sleep(process.rng.choice([0.0, 0.05, 0.4]))
