"""What the processes of a world do: each function is the main loop of one, and calls lancewal's own modules."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from lancewal_core import paths
from lancewal_core.errors import (
    LancewalError,
    ObjectMissing,
    OutsideHistoryWindow,
    PlanRetriesExhausted,
    VersionGone,
    WatermarkUnknown,
)
from lancewal_core.ids import Region
from lancewal_core.key_catalog import KeyCatalogs
from lancewal_core.key_index import KeyIndex
from lancewal_core.key_parts import StoredParts
from lancewal_core.log import SegmentCache
from lancewal_core.region_index import State
from lancewal_core.snapshot import read_snapshot
from lancewal_core.table import fragment_files
from lancewal_core.watermarks import TABLE_UUID
from lancewal_flusher.commit import Refused
from lancewal_flusher.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.compaction_plan import CompactionLimits
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.gc import GarbageState, collect_garbage
from lancewal_flusher.index_plan import IndexLimits
from lancewal_flusher.index_upkeep import extend_indexes
from lancewal_flusher.plan import MergeLimits
from lancewal_flusher.round import SealedSince, run_round
from lancewal_flusher.runner import ThreadRunner
from lancewal_reader.delta import DeltaContext, LoadedCache, SnapshotCache
from lancewal_reader.plan import PlanContext
from lancewal_reader.receipt import receipt_of
from lancewal_reader.table import Consistency, LancewalTable
from tests.simulation.checker import require, rows_of
from tests.simulation.world import PASSING, USER_KEYS, Process, World

Body = Callable[[World, Process], None]


def serve(world: World, group: str, body: Body) -> None:
    """Spawn a process that begins again after a passing fault."""

    def run() -> None:
        while True:
            process = world.process(group)
            try:
                body(world, process)
            except PASSING as error:
                world.note(f"{group.rstrip('0123456789')} restarts: {type(error).__name__}")
                world.group.expel(process.name)
                world.log(f"{process.name} restarts: {error}")
            world.scheduler.sleep(0.1)

    world.scheduler.spawn(group, run)


def member(world: World, process: Process) -> None:
    """An ingest service: steps, and now and then a clean shutdown."""
    worker, source = world.worker(process)
    world.log(f"{process.name} starts")
    worker.subscribe()
    life = process.rng.choice([10**9, 40, 200, 1000])
    while life:
        worker.step(0.1)
        life -= 1
        if worker.stopped:
            raise AssertionError(f"{process.name}: partitions stopped: {worker.stopped}")
    world.note("drained" if worker.drain(2.0) else "not drained in time")
    source.close()


def producer(world: World) -> None:
    """Sends the world's records, in bursts."""
    rng = Random(f"{world.seed}/producer")
    left = world.settings.records
    while left:
        for _ in range(min(left, rng.randint(1, 12))):
            world.produce(rng, rng.randrange(world.settings.keys))
            left -= 1
            if rng.random() < 0.2:
                world.scheduler.switch("produced")
        world.scheduler.sleep(rng.expovariate(1 / 0.3))
    world.produced = True


def flusher_context(world: World, process: Process) -> FlusherContext:
    return FlusherContext(
        process.store, process.table, process.indexes, process.watermarks,
        KeyIndex(KeyCatalogs(process.store, process.clock), StoredParts(process.store)),
        ThreadRunner(process.table, process.tasks), process.tasks, process.clock, world.contract, process.new_id,
    )  # fmt: skip


def flusher(world: World, process: Process) -> None:
    """A flusher service: rounds."""
    context = flusher_context(world, process)
    limits = MergeLimits(adopt_rows=process.rng.choice([1, 5, 50]), combine_changes=process.rng.choice([10, 1000]))
    since = SealedSince()
    while True:
        try:
            report = run_round(context, limits, since, sealed_grace_s=1.0, merges_max=process.rng.choice([1, 100]))
        except (*PASSING, VersionGone, ObjectMissing, WatermarkUnknown) as error:  # a clean-up came in between
            world.note(f"round: {type(error).__name__}")
            world.log(f"{process.name} round: {type(error).__name__} {error}")
        else:
            for merge in report.merges:
                world.note("merge")
                if merge.landed_behind:
                    world.note("merge rebased")
            world.counts["refused"] = world.counts.get("refused", 0) + len(report.refused)
            for done in report.finished:
                if done.rows_hidden or done.fragments_rebuilt:
                    world.note("follow-up")
        world.scheduler.sleep(process.rng.choice([0.05, 0.3]))


def collector(world: World, process: Process) -> None:
    """Garbage collection rounds."""
    context = flusher_context(world, process)
    state = GarbageState()
    while True:
        try:
            report = collect_garbage(context, state)
            world.counts["objects deleted"] = world.counts.get("objects deleted", 0) + report.deleted
            world.counts["trims"] = world.counts.get("trims", 0) + len(report.trimmed)
        except PASSING as error:
            world.note(f"garbage: {type(error).__name__}")
        world.scheduler.sleep(process.rng.choice([0.1, 0.5]))


def compactor(world: World, process: Process) -> None:
    """Compaction and indexes: as the service between its merges, or as ``lancewal compact`` beside them."""
    context = flusher_context(world, process)
    limits = CompactionLimits(
        fragments_min=2, growth=1.0, deleted_share=0.2, round_bytes=process.rng.choice([400, 10**9])
    )
    sizes = FileSizes()
    while True:
        try:
            result = compact_next(context, limits, sizes, with_sentinel=process.rng.random() < 0.5)
            if isinstance(result, Compacted):
                world.note("compaction")
            elif isinstance(result, Refused):
                world.note("compaction refused")
            extended = extend_indexes(context, IndexLimits(), at_once=process.rng.random() < 0.5)
            world.counts["index extended"] = world.counts.get("index extended", 0) + len(extended)
        except (*PASSING, VersionGone, WatermarkUnknown) as error:
            world.note(f"compaction: {type(error).__name__}")
        world.scheduler.sleep(process.rng.choice([0.05, 0.3]))


class SimTable(LancewalTable):
    """The reader's table on a world's twins."""

    def __init__(self, world: World, process: Process) -> None:
        segments = SegmentCache(1 << 20)
        cache = segments if process.rng.random() < 0.5 else None
        self.uri = "memory"
        self._contract = world.contract
        self._plan = PlanContext(
            process.store, process.table, process.indexes, process.watermarks, process.tasks, process.clock,
            world.contract, cache,
        )  # fmt: skip
        self._delta = DeltaContext(
            process.store, process.table, process.tasks, world.contract, segments, SnapshotCache(1 << 20), LoadedCache()
        )
        self._seen = {}


class Reading:
    """What one reader process reads, each result compared with the oracle (I1, I2, I5)."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self.table = SimTable(world, process)
        self._last: dict[Region, int] = {}

    def read(self, consistency: Consistency) -> None:
        """One scan.  Raises what the reader raises, and ``Violation``."""
        world = self._world
        known = dict(world.acknowledged)
        result = self.table.scan(consistency=consistency)
        rows = rows_of(result)
        receipt = receipt_of(result.schema)
        cut = {region: int(position) for region, position in receipt.cut.items()}
        world.note(f"{consistency} read")
        world.reads.append((receipt, rows))
        where = f"{self._process.name} version {receipt.version} cut {_short(cut)}"
        expected = world.expected_rows(cut, receipt.version)
        require(rows == expected, f"I2 {where}: rows", rows, "expected", expected)
        if consistency == "strong":
            short = {p: n for p, n in known.items() if cut.get(world.contract.regions[p], 0) < n}
            require(not short, f"I1 {where}: acknowledged before it began", short)
            back = {r.partition: n for r, n in self._last.items() if cut.get(r, 0) < n}
            require(not back, f"I5 {where}: the same reader saw", back)
            self._last = cut


def reader(world: World, process: Process) -> None:
    """A reader that looks again and again, and now and then reads again at an earlier receipt."""
    reading = Reading(world, process)
    for _ in range(process.rng.choice([3, 30])):
        if world.reads and process.rng.random() < 0.3:
            _read_again(world, process, reading.table)
        try:
            reading.read("strong" if process.rng.random() < 0.8 else "eventual")
        except (*PASSING, PlanRetriesExhausted, VersionGone) as error:
            world.note(f"read: {type(error).__name__}")
            world.log(f"{process.name} could not read: {error}")
        world.scheduler.sleep(process.rng.choice([0.0, 0.05, 0.4]))


def _read_again(world: World, process: Process, table: SimTable) -> None:
    """The rows of some reader's earlier read, or the named error."""
    receipt, rows = process.rng.choice(world.reads)
    try:
        result = table.scan(at=receipt.to_json())
        found = rows_of(result)
    except (*PASSING, PlanRetriesExhausted, VersionGone, OutsideHistoryWindow, WatermarkUnknown) as error:
        world.note(f"read again: {type(error).__name__}")
        world.log(f"{process.name} could not read again: {error}")
        return
    used = receipt_of(result.schema)
    world.note("read again" if used.version == receipt.version else "read again by another version")
    where = f"{process.name} version {used.version} for {receipt.to_json()}"
    require(used.cut == receipt.cut, f"{where}: another cut", used.cut)
    require(found == rows, f"I2 {where}: rows", found, "instead of", rows)


def user(world: World) -> None:
    """Does to the table what its owner may do at any time."""
    rng = Random(f"{world.seed}/user")
    table = world.checker.table
    k = USER_KEYS
    lost = ["lose files"] if world.settings.lose_files else []
    while True:
        world.scheduler.sleep(rng.expovariate(1 / 0.5))
        act = rng.choice(["append", "append", "index", "config", "compact", "clean up", *lost])
        match act:
            case "append":
                keys = list(range(k, k + rng.randint(1, 3)))
                k = keys[-1] + 1
                version = table.append(world.user_batch(keys))
                world.user_rows += [(version, key) for key in keys]
            case "index":
                table.create_index()
            case "config":
                table.update_config({TABLE_UUID: world.contract.table_uuid})
            case "compact":
                fragments = [f.fragment_id for f in table.newest().fragments()]
                table.compact([i for i in fragments if rng.random() < 0.5])
            case "clean up":
                clean_up(world, rng.choice([1, 2, 5]))
            case _:
                _lose_files(world, rng)
        world.note(f"user: {act}")
        world.log(f"user: {act}, version {table.newest().version}")


def clean_up(world: World, keep: int) -> None:
    """Remove old versions only: an unfinished merge, and what is newer than every record of watermarks, is young."""
    infos = world.bucket.listing(paths.merges_prefix())
    finished = max((v for i in infos if (v := paths.parse_merge_finished(i.key)) is not None), default=0)
    table = world.checker.table
    table.cleanup(keep=max(keep, table.newest().version - finished))


def _lose_files(world: World, rng: Random) -> None:
    """Remove the data files of a snapshot that no table version refers to."""
    dataset = world.dataset
    referred = {f.file for version in dataset.versions.values() for f in version.fragments}
    for region in world.contract.regions:
        index = world.checker.indexes.read(region)
        for record in () if index is None else index.generations:
            if record.state is State.FLUSHED and record.snapshot is not None and rng.random() < 0.5:
                snapshot = read_snapshot(world.checker.store, record.snapshot)
                names = {name for fragment in snapshot.fragments for name in fragment_files(fragment)}
                if not names & referred:
                    for name in names:
                        dataset.files.pop(name, None)


def chaos(world: World) -> None:
    """Crashes, freezes, rebalances, jumps of time, and looks at the state of the stopped world."""
    rng = Random(f"{world.seed}/chaos")
    while True:
        world.scheduler.sleep(rng.expovariate(1 / 0.3))
        world.checker.check(world.acknowledged)
        if not world.settings.chaos:
            continue
        act = rng.choices(["rebalance", "crash", "pause", "warp", "none"], [6, 2, 3, 0.3, 4])[0]
        world.note(f"chaos: {act}")
        groups = sorted(g for g in world.scheduler.groups() if g in world.bodies)
        match act:
            case "rebalance":
                world.group.target[rng.randrange(world.settings.partitions)] = None
            case "crash" if groups:
                group = rng.choice(groups)
                world.log(f"crash of {group}")
                world.scheduler.crash(group)
                world.scheduler.sleep(rng.choice([0.01, 0.5]))
                world.group.expel(world.incarnation.get(group, group))
                serve(world, group, world.bodies[group])
            case "pause" if groups:
                group = rng.choice(groups)
                seconds = rng.choice([0.3, 2.0, 10.0])
                world.log(f"pause of {group} for {seconds} s")
                world.scheduler.pause(group, seconds)
                if rng.random() < 0.7:
                    world.scheduler.sleep(0.2)
                    world.group.expel(world.incarnation.get(group, group))
            case "warp":
                world.scheduler.now += rng.choice([60.0, 4000.0])
            case _:
                pass
        world.group.balance(rng)


def balancer(world: World) -> None:
    """The group coordinator: sessions of the dead time out, and what nobody has goes to somebody."""
    rng = Random(f"{world.seed}/balancer")
    while True:
        world.scheduler.sleep(0.3)
        for name in sorted(world.group.members - set(world.incarnation.values())):
            world.group.expel(name)
        world.group.balance(rng)


def _short(cut: dict[Region, int]) -> dict[int, int]:
    return {region.partition: position for region, position in cut.items()}


def describe(error: BaseException) -> str:
    kind = f"{error.kind} " if isinstance(error, LancewalError) else ""
    return f"{type(error).__name__} {kind}{error}"
