"""Interleavings around trimming, and of a read plan with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from lancewal_core.errors import LancewalError, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.region.pages.state_page import decode_page, encode_page
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundState, run_round
from tests.simulation.checker import require
from tests.simulation.script import stops
from tests.simulation.stage import Stage
from tests.support.indexes import with_flipped_record
from tests.twins.faults import ListFault


def history_ends_while_it_is_kept() -> None:
    """What is merged leaves the index before its segments are deleted, whenever the collector stops."""
    stage = Stage()
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    for _ in range(2):
        stage.append_and_seal(a, 0, 1)
        stage.round(f)
    stage.append(a, 0)
    stage.collect(f)
    stage.check()


def generation_opens_while_garbage_is_collected() -> None:
    """The collector has read the indexes; then B, with a new log, takes a region over and appends."""
    stage = Stage()
    a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
    stage.append(a, 0)

    def hand_over() -> None:
        stage.give(b, 0)
        stage.step(a)
        stage.step(b)
        stage.append(b, 0)

    state = GarbageState()
    # The listing of regions is that of history pages, behind the indexes.
    stage.scripts["f"].before("list", paths.topic_regions_prefix(stage.region(0), stage.contract.making), hand_over)
    collect_garbage(f, state)
    stage.scheduler.now += 10
    collect_garbage(f, state)
    stage.check()


def record_is_damaged_while_others_go_on() -> None:
    """The record of a region that holds on to A's log is damaged, and put right later; the other goes on in B's, is merged and
    trimmed meanwhile."""
    stage = Stage()
    a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
    stage.append_and_seal(a, 0, 1)
    stage.round(f)
    stage.append(a, 0)
    region, key = stage.region(0), stage.bucket.listing(paths.page_prefix(stage.page(0)))[0].key
    whole = stage.bucket.get(key) or b""
    harmed = with_flipped_record(whole, 0)
    _change_records(stage, [key], whole, harmed)
    stage.take_over(a, b, 1)
    stage.append_and_seal(b, 1)
    state = GarbageState()
    for _ in range(2):
        report = run_round(f, MergeLimits(), RoundState(), sealed_grace_s=0.0)
        require(set(report.held) <= {region}, "held are", report.held)
        with suppress(LancewalError):  # it names what it finds
            stage.collect(f, state)
        with stops(ObjectCorrupt):
            stage.reader("r").read("strong")
    merged = stage.process("audience").watermarks.newest()[1]
    require(merged.generation(stage.region(1)) > 1, "the other region is not merged, but", merged.regions)
    versions = [info.key for info in stage.bucket.listing(paths.page_prefix(stage.page(0)))]
    _change_records(stage, versions, harmed, whole)  # also where a swap has copied it
    stage.give(b, 0)
    stage.step(b, 4)
    stage.append_and_seal(b, 0, 1)
    stage.round(f)
    stage.check_table()
    stage.check()


@contextmanager
def damaged_record(stage: Stage, partition: int) -> Iterator[None]:
    """The first partition's record of the page of ``partition`` is damaged meanwhile, in all its versions."""
    versions = [info.key for info in stage.bucket.listing(paths.page_prefix(stage.page(partition)))]
    whole = stage.bucket.get(versions[0]) or b""
    harmed = with_flipped_record(whole, 0)
    _change_records(stage, versions, whole, harmed)
    yield
    versions = [info.key for info in stage.bucket.listing(paths.page_prefix(stage.page(partition)))]
    _change_records(stage, versions, harmed, whole)


def _change_records(stage: Stage, versions: Sequence[str], old: bytes, new: bytes) -> None:
    """The first partition's record of the page ``old`` becomes that of ``new``, where it lies."""
    before, after = (decode_page(page, versions[0]).records[0] for page in (old, new))
    for key in versions:
        page = decode_page(stage.bucket.get(key) or b"", key)
        if page.records[0] == before:
            stage.bucket.delete(key)
            stage.bucket.put(key, encode_page(page.with_records({0: after})), 0)


def listing_leaves_a_region_out() -> None:
    """A region that holds old segments is not in any listing while another one goes far ahead in the same log."""
    stage = Stage()
    a, f = stage.member("a", 0, 1), stage.flusher("f")
    stage.append(a, 0)
    stage.append(a, 0)
    stage.append(a, 1)
    stage.scripts["f"].listings[stage.region(0).name] = ListFault.PARTIAL
    state = GarbageState()
    for _ in range(2):
        with suppress(LancewalError):  # a listing that cannot be right ends the round
            stage.collect(f, state)
    stage.check()


def region_comes_back_into_the_same_log() -> None:
    """Between a reader's look at the index and its walk, A loses the region to B and gets it again."""
    stage = Stage()
    a, b, reader = stage.member("a", 0, 1), stage.member("b"), stage.reader("r")
    stage.append(a, 0)

    def there_and_back() -> None:
        for giver, taker in ((a, b), (b, a)):
            stage.give(taker, 0)
            stage.step(giver)
            stage.step(taker)
            stage.append(taker, 0)

    stage.scripts["r"].before("get", f"wal/{a.log}", there_and_back)
    reader.read("strong")
    stage.check()


def log_is_trimmed_before_it_is_walked() -> None:
    """Between a reader's look at the index and its walk, everything it wants is merged and trimmed."""
    stage = Stage()
    a, f, reader = stage.member("a", 0, 1), stage.flusher("f"), stage.reader("r")
    stage.append(a, 0)

    def merge_and_trim() -> None:
        for _ in range(2):
            stage.seal(a)
            stage.round(f)
            stage.append(a, 0)
        stage.collect(f)

    stage.scripts["r"].before("get", f"wal/{a.log}", merge_and_trim)
    reader.read("strong")
    stage.check()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    history_ends_while_it_is_kept: ("delete before the boundary moves", "I8"),
    generation_opens_while_garbage_is_collected: ("candidates after the indexes", "I8|acknowledged up to"),
    record_is_damaged_while_others_go_on: ("what a damaged region needs is not kept", "I8|is missing"),
    listing_leaves_a_region_out: ("regions by listing", "I8|acknowledged up to"),
    region_comes_back_into_the_same_log: ("joining over a gap", "I2"),
    log_is_trimmed_before_it_is_walked: ("no proof of a walk's end", "I1"),
}
