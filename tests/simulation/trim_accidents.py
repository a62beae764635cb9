"""Accidents around trimming, and under a reader's plan."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from lancewal_core.errors import (
    ContractMismatch,
    ObjectCorrupt,
    ObjectMissing,
    PlanStale,
    StoreInconsistent,
    StoreUnavailable,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, Sequence
from lancewal_core.process.tasks import Task
from lancewal_core.region.history import KnownPages, generations_behind, read_histories
from lancewal_core.region.state import GenerationState, decode_history, encode_history
from lancewal_core.table.contract import encode_contract
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_reader.plan.strong import plan_strong
from tests.simulation.checker import require
from tests.simulation.script import Script, stops
from tests.simulation.stage import ALWAYS, Member, Stage
from tests.twins.faults import ListFault, PutFault

T = TypeVar("T")
A = TypeVar("A")


def contract_is_newer() -> None:
    """The contract has a version that the flusher does not know: it deletes nothing."""
    stage = Stage()
    _, f, _ = stage.flushed(0)
    newer = stage.contract.model_copy(update={"version": 2, "history_window_s": 9})
    stage.bucket.put(paths.contract_version(2, newer.making), encode_contract(newer), 0)
    with stops(ContractMismatch):
        stage.collect(f)


def _long_life(generations: int) -> tuple[Stage, Member]:
    """A region with so many merged generations."""
    stage = Stage(partitions=1, history_window_s=1_000)
    a, f = stage.member("a", 0), stage.flusher("f")
    for number in range(generations):
        stage.append_and_seal(a, 0)
        if number % 8 == 7:
            stage.round(f)
    stage.round(f)
    stage.append(a, 0)
    return stage, a


def region_lives_long() -> None:
    """Generations leave the index for a page, the page is read, cannot be written, is lost; index versions are trimmed."""
    stage, _ = _long_life(70)
    region = stage.region(0)
    f, g = stage.flusher("f"), stage.flusher("g")
    stage.scripts["f"].puts.append(("/history/", PutFault.NEVER_ARRIVED))
    with stops(StoreUnavailable):
        collect_garbage(f, GarbageState())
    # Between a collector's look and its page another one writes the page, and then the index.
    stage.scripts["f"].before("put", "/history/", lambda: collect_garbage(g, GarbageState()))
    collect_garbage(f, GarbageState())
    (page,) = [info.key for info in stage.bucket.listing(paths.history_prefix(region, stage.contract.making))]
    stage.bucket.put(f"{paths.history_prefix(region, stage.contract.making)}note.txt", b"of an operator", 0)
    stage.bucket.put(f"{paths.FLUSHES}note.txt", b"of an operator", 0)
    stage.scripts["f"].listings["/history/"] = ListFault.PARTIAL
    with stops(StoreInconsistent):
        collect_garbage(f, GarbageState())
    stage.scripts["f"].listings.clear()
    # The page goes away between its listing and the look at it: again from the index.
    stage.scripts["f"].before("get", page, lambda: stage.collect(g))
    collect_garbage(f, GarbageState())
    stage.check()
    # A week later old versions of the page go, from the oldest on, unless a listing leaves one out.
    stage.scheduler.now += 8 * 24 * 3600
    page_of = stage.page(0)
    first = paths.page_version(page_of, 2)
    version = stage.bucket.get(first) or b""
    stage.bucket.delete(paths.page_version(page_of, 4))
    collect_garbage(f, GarbageState())
    left = [info.key for info in stage.bucket.listing(paths.page_prefix(page_of))]
    require(first not in left and paths.page_version(page_of, 5) in left, "page versions:", left)
    stage.bucket.put(paths.page_version(page_of, 4), version, 0)
    stage.scripts["f"].before("list", paths.page_prefix(page_of), lambda: None)
    collect_garbage(f, GarbageState())
    stage.check()


def history_page_is_damaged() -> None:
    """Of one region: a collector deletes nothing that it may name, who needs it stops, and all goes on once it is put back."""
    stage, _ = _long_life(70)
    f, region = stage.flusher("f"), stage.region(0)
    collect_garbage(f, GarbageState(pages=KnownPages(1)))
    collect_garbage(f, GarbageState(pages=KnownPages(1)))
    (page,) = [info.key for info in stage.bucket.listing(paths.history_prefix(region, stage.contract.making))]
    data = stage.bucket.get(page) or b""
    in_force = f.watermarks.newest()[1]

    def lies_there(content: bytes | None) -> None:
        stage.bucket.delete(page)
        if content is not None:
            stage.bucket.put(page, content, 0)

    lies_there(b"damaged")
    there = [info.key for info in stage.bucket.listing("_lancewal/")]
    stage.scheduler.now += 2_000
    with suppress(ObjectCorrupt):  # it may name what it finds
        collect_garbage(f, GarbageState())
    require([info.key for info in stage.bucket.listing("_lancewal/")] == there, "something was deleted of", there)
    with stops(ObjectCorrupt):
        read_histories(f, [region], in_force)
    lies_there(data)
    stage.scripts["f"].before("get", page, lambda: lies_there(None))
    with stops(StoreInconsistent):
        read_histories(f, [region], in_force)
    lies_there(data)
    stage.collect(f)
    stage.check()


def old_receipt_is_read_from_a_page() -> None:
    """What a reader saw when nothing was merged lies in generations that have left the index for a page: it is read again
    whole, or a named error says why not."""
    stage = Stage(partitions=1, history_window_s=1_000)
    a, f = stage.member("a", 0), stage.flusher("f")
    region = stage.region(0)
    with stops(PlanStale):  # nobody has claimed what a receipt names
        generations_behind(f, region, None, Generation(0))
    stage.append_and_seal(a, 0)
    stage.reader("r").read("strong")
    early = stage.reads[-1]

    def read(note: str) -> None:
        before = stage.counts.get(note, 0)
        stage.reader("again").read_again(*early)
        require(stage.counts.get(note, 0) == before + 1, f"not {note}:", stage.counts)

    for number in range(130):
        stage.append_and_seal(a, 0)
        if number % 8 == 7:
            stage.round(f)
    stage.append(a, 0)
    read("read again")
    for _ in range(2):
        collect_garbage(f, GarbageState())
    stage.bucket.put(f"{paths.history_prefix(region, stage.contract.making)}note.txt", b"of an operator", 0)
    read("read again")
    stage.reader("r").read("strong")
    listed = stage.bucket.listing(paths.history_prefix(region, stage.contract.making))
    pages = [info.key for info in listed if "note" not in info.key]
    page, data = pages[0], stage.bucket.get(pages[0]) or b""
    records = decode_history(data, page).generations
    for left in ((), records[:-1]):
        stage.bucket.delete(page)
        if left:
            stage.bucket.put(page, encode_history(region, 1, left), 0)
        read("read again: PlanRetriesExhausted")
    stage.bucket.delete(page)
    stage.bucket.put(page, data, 0)
    stage.scripts["again"].before("get", page, lambda: stage.bucket.delete(page))
    read("read again: PlanRetriesExhausted")
    stage.bucket.put(page, data, 0)
    stage.scheduler.now += 1_000
    stage.collect(f)
    read("read again: OutsideHistoryWindow")
    stage.check()


def two_collectors() -> None:
    """Another collector trims between the look at an index and the compare-and-swap."""
    stage = Stage()
    a, f, g = stage.flushed(0)
    stage.round(f)
    stage.append(a, 0)
    stage.scheduler.now += 10
    stage.scripts["f"].before(
        "list", paths.history_prefix(stage.region(1), stage.contract.making), lambda: stage.collect(g)
    )
    collect_garbage(f, GarbageState())
    stage.check()


def region_is_trimmed_under_a_plan() -> None:
    """A reader has pinned a version; before it reads the indexes, what it lacks is merged, trimmed and deleted."""
    stage = Stage()
    a, f, _ = stage.flushed(0, 1)
    reader = stage.reader("r")

    def merge_and_trim() -> None:
        stage.round(f)
        stage.append_and_seal(a, 0, 1)
        stage.collect(f)

    stage.scripts["r"].before("list", paths.page_prefix(stage.page(0)), merge_and_trim)
    reader.read("strong")
    stage.check()


class _Backwards:
    """Of calls that go out together the last one comes first."""

    def start(self, call: Callable[[], T]) -> Task[T]:
        raise AssertionError("nothing is started")

    def map(self, call: Callable[[A], T], items: Seq[A]) -> list[T]:
        return [call(item) for item in reversed(items)][::-1]


def region_is_merged_between_its_index_and_the_version() -> None:
    """A reader has read the indexes and the log; before it pins a version, what they show is merged, and more behind it, and
    trimmed: the version is newer than they are."""
    stage = Stage()
    a, f, reader = stage.member("a", 0, 1), stage.flusher("f"), stage.reader("r")
    stage.append(a, 0)
    context = replace(reader.table._reads.context, tasks=_Backwards())
    versions: list[int] = []

    def merge_and_trim() -> None:
        for _ in range(2):
            stage.append_and_seal(a, 0, 1)
            stage.round(f)
        stage.append(a, 0)
        stage.collect(f)
        versions.append(f.table.newest().version)

    stage.scripts["r"].before("list", f"wal/{a.log}", merge_and_trim)
    plan = plan_strong(context)
    require(versions != [], "the log was not listed before the version was pinned")
    require(plan.version == versions[0], "the plan reads version", plan.version, "of", versions)
    require(plan.cut[stage.region(0)] == stage.acknowledged[0], "the plan ends at", plan.cut)
    stage.check()


def log_is_trimmed_while_its_end_is_proven() -> None:
    """Between the index that a reader reads again behind its walk, and its listing of the log, the log goes on and is trimmed
    up to behind where the walk has ended: nothing is lost."""
    stage = Stage()
    a, f, reader = stage.member("a", 0, 1), stage.flusher("f"), stage.reader("r")
    stage.append(a, 0)
    log = LogId(a.log.removesuffix("/"))

    def merge_and_trim() -> None:
        for _ in range(2):
            stage.append_and_seal(a, 0, 1)
            stage.round(f)
        stage.append(a, 0)
        stage.collect(f)
        require(stage.bucket.get(paths.wal_segment(log, Sequence(1))) is None, "not trimmed:", log)

    stage.scripts["r"].before("list", f"wal/{a.log}", merge_and_trim)
    plan = plan_strong(reader.table._reads.context)
    require(plan.cut[stage.region(0)] == stage.acknowledged[0], "the plan ends at", plan.cut)
    stage.check()


def log_s_end_is_asked_of_a_bad_listing() -> None:
    """It shows less than there is, or what was there long ago: reads and claims of a sound log are as ever."""
    for fault in ListFault:
        stage = Stage()
        a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
        for name in ("b", "r"):
            stage.scripts.setdefault(name, Script()).listings["wal/"] = fault
        for _ in range(3):
            stage.append_and_seal(a, 0, 1)
            stage.round(f)
            stage.append(a, 0)
            stage.collect(f)
            stage.reader("r").read("strong")
        stage.take_over(a, b, 0, 1)
        stage.append(b, 0)
        stage.reader("r").read("strong")
        require(not b.worker.stopped, "B stopped:", b.worker.stopped)
        stage.check()


def sealed_segment_is_lost() -> None:
    """A segment that a SEALED generation needs is not there: no read joins over it."""
    stage = Stage()
    a = stage.member("a", 0, 1)
    stage.append(a, 0)
    stage.append(a, 0)
    a.script.down += [("write rows", "table")] * 10
    a.worker._sealing.policy = ALWAYS
    stage.step(a)
    state = stage.checker.states.read([stage.region(0)]).get(stage.region(0))
    require(state is not None and state.generations[0].state is GenerationState.SEALED, "not flushed yet:", state)
    newest = max(info.key for info in stage.bucket.listing(paths.WAL))
    stage.bucket.delete(newest)
    with stops(ObjectMissing):
        stage.reader("r").read("strong")


ACCIDENTS: list[Callable[[], None]] = [
    contract_is_newer,
    region_lives_long,
    history_page_is_damaged,
    old_receipt_is_read_from_a_page,
    two_collectors,
    region_is_trimmed_under_a_plan,
    region_is_merged_between_its_index_and_the_version,
    log_is_trimmed_while_its_end_is_proven,
    log_s_end_is_asked_of_a_bad_listing,
    sealed_segment_is_lost,
]
