"""Interleavings around generations that were flushed together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from lancewal_core.names import paths
from lancewal_core.region.flush import rebuild_flush
from lancewal_core.region.flushes.manifest import read_flush
from lancewal_core.region.state import GenerationState
from lancewal_core.table.protocol import files_of
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.service.round import RoundState, run_round
from tests.simulation.checker import require
from tests.simulation.script import Crashed, crash, hang
from tests.simulation.stage import Member, Stage

_NEVER_S = 1e9


def flush_of(stage: Stage, partition: int) -> str:
    """The manifest that the newest flushed generation of a partition names."""
    region = stage.region(partition)
    state = stage.checker.states.read([region])[region]
    return next(r.flush for r in reversed(state.generations) if r.flush is not None)


def files(stage: Stage, flush: str) -> set[str]:
    return set(files_of(read_flush(stage.checker.store, flush).fragments))


def require_adopted(stage: Stage, flush: str, adopted: bool) -> None:
    """Whether the table has the files of the flush, once each."""
    named = [fragment.file for fragment in stage.dataset.newest.fragments if fragment.file in files(stage, flush)]
    require(sorted(named) == (sorted(files(stage, flush)) if adopted else []), "its files in the table are", named)


def parts_of_one_flush_are_merged() -> None:
    """Two generations lie in the same files, which a merge that takes both adopts."""
    stage = Stage()
    _, f, _ = stage.flushed(0, 1)
    flush = flush_of(stage, 0)
    parts = read_flush(stage.checker.store, flush).parts
    require({part.region.partition for part in parts} == {0, 1}, "they were not flushed together:", parts)
    stage.check()
    stage.round(f)
    stage.check_table()
    require_adopted(stage, flush, True)
    stage.check()


def one_part_waits_and_the_other_does_not_yet() -> None:
    """Two generations lie in the same files; when F merges, the index of one still says SEALED."""
    stage = Stage(partitions=3)
    a, f = stage.member("a", 0, 1, 2), stage.flusher("f")
    stage.append(a, 0)
    stage.append(a, 2)

    def meanwhile() -> None:
        seen.append(flush_of(stage, 0))
        run_round(f, MergeLimits(), RoundState(), sealed_grace_s=_NEVER_S).raise_held()
        stage.check_table()
        require_adopted(stage, seen[0], False)

    seen: list[str] = []
    # The first swap seals it.
    a.script.before("put", paths.page_prefix(stage.page(2)), meanwhile, passing=2)
    stage.seal(a)
    require(seen == [flush_of(stage, 2)], "it names another flush:", flush_of(stage, 2), seen)
    stage.check()
    stage.round(f)
    stage.check_table()
    require_adopted(stage, seen[0], False)
    stage.check()


def one_part_was_made_anew() -> None:
    """Of two generations in the same files one was made anew by hand: its index names another flush, with its rows, too."""
    stage = Stage()
    _, f, g = stage.flushed(0, 1)
    flush = flush_of(stage, 0)
    region = stage.region(0)
    state = stage.checker.states.read([region])[region]
    (record,) = (r for r in state.generations if r.state is GenerationState.FLUSHED)
    rebuild_flush(g, region, record, g.new_id)
    require(flush_of(stage, 0) != flush == flush_of(stage, 1), "it names the same flush still:", flush)
    stage.round(f)
    stage.check_table()
    require_adopted(stage, flush, False)
    stage.check()


def one_part_has_a_generation_behind_it() -> None:
    """Two generations lie in the same files; of one region the next one waits, too, and the merge takes both of them."""
    stage = Stage()
    a, f, _ = stage.flushed(0, 1)
    flush = flush_of(stage, 0)
    stage.append_and_seal(a, 0)
    stage.round(f)
    stage.check_table()
    require_adopted(stage, flush, False)
    stage.check()


def adopted_flush_loses_its_files() -> None:
    """F adopts the files of two generations and dies before it finishes the merge; a clean-up takes them; G finishes."""
    stage = Stage()
    _, f, g = stage.flushed(0, 1)
    flush = flush_of(stage, 0)
    stage.scripts["f"].before("put", ".finished", crash)
    with suppress(Crashed):
        stage.round(f)
    require_adopted(stage, flush, True)
    for name in files(stage, flush):
        stage.dataset.files.pop(name)
    stage.round(g)
    require_adopted(stage, flush, False)
    stage.check_table()
    stage.check()


def one_part_is_merged_before_the_other() -> None:
    """Of two generations in the same files one is made anew from the log, and merged; the other is merged later."""
    stage = Stage(partitions=3)
    a, f = stage.member("a", 0, 1, 2), stage.flusher("f")
    stage.append(a, 0)
    stage.append(a, 2)

    def meanwhile() -> None:
        """A stands still between the swaps of two pages: the one tells of the flush, the other does not yet."""
        flush = flush_of(stage, 0)
        for name in list(stage.dataset.files):
            stage.dataset.files.pop(name)
        run_round(f, MergeLimits(), RoundState(), sealed_grace_s=_NEVER_S).raise_held()
        require(flush_of(stage, 0) != flush, "it was not made anew:", flush)
        state = GarbageState()
        for _ in range(2):
            collect_garbage(f, state)
            stage.scheduler.now += stage.settings.grace_s + 1
        seen.append(flush)

    seen: list[str] = []
    # The first swap seals it.
    a.script.before("put", paths.page_prefix(stage.page(2)), meanwhile, passing=2)
    stage.seal(a)
    require(seen == [flush_of(stage, 2)], "it names another flush:", flush_of(stage, 2), seen)
    require(stage.bucket.get(seen[0]) is not None, "what it names was deleted:", seen[0])
    stage.check()
    stage.round(f)
    stage.check_table()
    stage.append_and_seal(a, 0, 2)
    stage.round(f)
    stage.check_table()
    stage.check()


def _flushed_beside_a_silent_page() -> tuple[Stage, Member]:
    """Four regions of two pages are flushed together, and the swap of the first page has no answer."""
    stage = Stage(partitions=4)
    a = stage.member("a", 0, 1, 2, 3)
    for partition in range(4):
        stage.append(a, partition)
    a.script.before("put", paths.page_prefix(stage.page(0)), hang, passing=2)  # the first swap seals
    stage.seal(a)
    return stage, a


def _require_states(stage: Stage, *newest_last: list[GenerationState]) -> None:
    """Of the ended generations of each partition."""
    states = stage.checker.states.read(stage.contract.regions)
    found = [[r.state for r in states[region].generations if r.state is not GenerationState.OPEN] for region in states]
    require(found == list(newest_last), "the generations are", found)


def a_page_is_silent_while_others_answer() -> None:
    """What lies in the other page is FLUSHED, and A holds on to none of it."""
    stage, a = _flushed_beside_a_silent_page()
    _require_states(
        stage, [GenerationState.SEALED], [GenerationState.SEALED], [GenerationState.FLUSHED], [GenerationState.FLUSHED]
    )
    require(len(a.worker._flushes) == 2, "it holds on to", len(a.worker._flushes))
    stage.check()
    stage.answer(a)
    stage.step(a, 2)
    _require_states(stage, *[[GenerationState.FLUSHED]] * 4)
    require(len(a.worker._flushes) == 0, "it holds on to", len(a.worker._flushes))
    stage.check()


def a_page_is_silent_for_long() -> None:
    """Further generations of the other page are flushed meanwhile; those of the silent one wait in their order."""
    stage, a = _flushed_beside_a_silent_page()
    for partition in (2, 3):
        stage.append_and_seal(a, 0, partition)
    flushed, waiting = [GenerationState.FLUSHED] * 2, [GenerationState.SEALED] * 3
    _require_states(stage, waiting, [GenerationState.SEALED], flushed, flushed)
    stage.check()
    stage.answer(a)
    stage.step(a, 10)
    _require_states(stage, [GenerationState.FLUSHED] * 3, [GenerationState.FLUSHED], flushed, flushed)
    stage.check()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    a_page_is_silent_while_others_answer: ("a flush has one answer", "the generations are"),
    a_page_is_silent_for_long: ("one flush at a time", "the generations are"),
    parts_of_one_flush_are_merged: ("a file is adopted once a part", "a key shows twice"),
    one_part_waits_and_the_other_does_not_yet: ("a flush is adopted with a part of its parts", "I2"),
    one_part_was_made_anew: ("a flush is adopted with a part of its parts", "a key shows twice"),
    one_part_has_a_generation_behind_it: ("a flush is adopted beside later generations", "a key shows twice"),
    adopted_flush_loses_its_files: ("lost files are those of one region", "I2"),
    one_part_is_merged_before_the_other: ("a flush that nobody names goes", "what it names was deleted"),
}
