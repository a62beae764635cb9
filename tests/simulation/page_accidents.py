"""Accidents around the pages that the indexes of several regions lie in."""

from __future__ import annotations

from collections.abc import Callable

from lancewal_core.names import paths
from lancewal_core.names.ids import Page
from lancewal_core.region.state import GenerationState
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from tests.simulation.checker import require
from tests.simulation.run import limits_of
from tests.simulation.settings import Limits
from tests.simulation.stage import ALWAYS, NEVER, Stage
from tests.support.regions import numbers
from tests.twins.faults import PutFault


def _generations(stage: Stage, *partitions: int) -> list[list[tuple[int, GenerationState]]]:
    """What the indexes say of these."""
    states = stage.checker.states.read([stage.region(p) for p in partitions])
    return [[(int(r.generation), r.state) for r in states[stage.region(p)].generations] for p in partitions]


def _versions(stage: Stage, page: Page) -> list[int]:
    found = [paths.parse_page_version(info.key) for info in stage.bucket.listing(paths.page_prefix(page))]
    return sorted(parsed[1] for parsed in found if parsed is not None)


def two_owners_swap_a_page_at_once() -> None:
    """A has one region of a page, B the other: before A's seal is put, B's lands.  Each gets what it decided."""
    stage = Stage()
    a, b = stage.member("a", 0), stage.member("b", 1)
    stage.append(a, 0, records=2)
    stage.append(b, 1, records=3)
    a.script.before("put", "/pages/", lambda: stage.seal(b))
    stage.seal(a)
    both = [(1, GenerationState.FLUSHED), (2, GenerationState.OPEN)]
    require(_generations(stage, 0, 1) == [both, both], "sealed:", _generations(stage, 0, 1))
    require((numbers(a.worker.durable), numbers(b.worker.durable)) == ([0], [1]), "both keep theirs:", stage.counts)
    stage.append(a, 0)
    stage.append(b, 1)
    stage.check()


def swap_of_many_regions_lands_and_nobody_says_so() -> None:
    """Claims, seals and hand-overs of both regions of a page in one swap, whose reply is lost; it is read back as done."""
    stage = Stage()
    a, b = stage.member("a"), stage.member("b")
    lost = ("/pages/", PutFault.REPLY_LOST)
    a.script.puts.append(lost)
    stage.give(a, 0, 1)
    stage.step(a)
    require(numbers(a.worker.durable) == [0, 1], "claimed:", stage.counts)
    for partition in (0, 1):
        stage.append(a, partition)
    a.script.puts.append(lost)
    stage.seal(a)
    sealed = [(1, GenerationState.FLUSHED), (2, GenerationState.OPEN)]
    require(_generations(stage, 0, 1) == [sealed, sealed], "sealed once:", _generations(stage, 0, 1))
    a.script.puts.append(lost)
    stage.give(b, 0, 1)
    stage.step(a)
    require(a.worker.durable == {}, "handed over:", a.worker.durable)
    stage.step(b, 4)
    require(stage.counts.get("ownership lost", 0) == 0, "nobody fenced:", stage.counts)
    for partition in (0, 1):
        stage.append(b, partition)
    stage.check()


def some_pages_are_swapped_in_a_claim() -> None:
    """B ends A's log and claims what lies in one page; the other's swap fails, and B dies.  C takes over all: of two former
    owners, and a log that has ended for both."""
    stage = Stage(partitions=4)
    a, b, c = stage.member("a", 0, 1, 2, 3), stage.member("b"), stage.member("c")
    for partition in range(4):
        stage.append(a, partition)
    b.script.puts += [(paths.page_prefix(stage.page(2)), PutFault.NEVER_ARRIVED)] * 400
    stage.take_over(a, b, 0, 1, 2, 3)
    require(numbers(b.worker.durable) == [0, 1], "B has", b.worker.durable)
    stage.append(b, 0)
    stage.take_over(b, c, 0, 1, 2, 3)
    stage.step(c, 4)
    require(numbers(c.worker.durable) == [0, 1, 2, 3], "C has", c.worker.durable)
    for partition in range(4):
        stage.append(c, partition)
    stage.check()


def owner_sleeps_while_old_versions_are_deleted() -> None:
    """A is frozen between the look at a page and the put of its successor.  B claims one of its regions, the page goes on for
    hours, and the number that A puts was used and deleted: what lies there then counts for nothing.  The region that A lost
    is B's; of the other, which is A's, all is decided anew."""
    with limits_of(Limits(page_at=64, page_rest=16, versions_kept=3)):
        stage = Stage()
        a, b, f = stage.member("a", 0, 1), stage.member("b"), stage.flusher("f")
        stage.append(a, 0)
        page = stage.page(0)
        put_at = max(_versions(stage, page)) + 1

        def meanwhile() -> None:
            stage.take_over(a, b, 0)
            for _ in range(8):
                stage.append_and_seal(b, 0)
            stage.round(f)
            stage.scheduler.now += 2 * 3600
            stage.append_and_seal(b, 0)
            stage.round(f)
            collect_garbage(f, GarbageState())
            require(put_at not in _versions(stage, page), "it is still there:", _versions(stage, page))

        a.script.before("put", "/pages/", meanwhile)
        a.worker._sealing.policy = ALWAYS
        a.worker._sealing.advance(a.worker._writer)
        a.worker._sealing.policy = NEVER
        require(put_at in _versions(stage, page), "A has put no stray:", _versions(stage, page))
        newest = stage.checker.states.read([stage.region(0)])[stage.region(0)].generations[-1]
        require(newest.owner == b.worker._owner, "it is not B's:", newest)
        require(stage.region(0) not in a.worker.durable, "A still believes that it has", a.worker.durable)
        stage.append(b, 0)
        stage.check()


ACCIDENTS: list[Callable[[], None]] = [
    two_owners_swap_a_page_at_once,
    swap_of_many_regions_lands_and_nobody_says_so,
    some_pages_are_swapped_in_a_claim,
    owner_sleeps_while_old_versions_are_deleted,
]
