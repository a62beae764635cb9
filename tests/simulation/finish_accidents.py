"""Accidents between a merge and its follow-up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from lancewal_core.errors import (
    MergeUnproven,
    ObjectMissing,
    StoreUnavailable,
)
from lancewal_core.names import paths
from tests.simulation.checker import require
from tests.simulation.merge_accidents import flush_files
from tests.simulation.script import Crashed, crash, stops
from tests.simulation.stage import Stage
from tests.twins.faults import CommitFault, PutFault


def _unfinished(stage: Stage, *appended: int) -> None:
    """F merges, the user having appended rows meanwhile, and dies before it finishes."""
    script = stage.scripts["f"]
    if appended:
        script.before("commit", "table", lambda: stage.user_appends(*appended))
    script.before("put", ".finished", crash)
    script.before("commit", "table", crash, passing=2)


def unfinished_merge_is_cleaned_away() -> None:
    """F dies before it has finished a merge, and its version is cleaned up: nobody builds on it."""
    stage = Stage()
    _, f, g = stage.flushed(0)
    _unfinished(stage)
    with suppress(Crashed):
        stage.round(f)
    stage.user_appends(5_000)
    stage.checker.table.cleanup(keep=1)
    for context in (f, g):
        with stops(MergeUnproven):
            stage.round(context)
    stage.checker.check(stage.acknowledged)


def another_finishes_and_cleans_up_first() -> None:
    """H begins to finish a merge; before it reads what the merge was, G has finished it and its version is gone."""
    stage = _half_finished()
    script = stage.scripts["h"]
    script.before("get", ".finished", lambda: script.before("transaction", "table", lambda: _overtake(stage)))
    _finish_late(stage)


def another_finishes_while_it_is_read() -> None:
    """The same, when H knows what the merge was and wants to see its version."""
    stage = _half_finished()
    stage.scripts["h"].before("at", "table", lambda: _overtake(stage))
    _finish_late(stage)


def another_finishes_before_the_sender_goes_on() -> None:
    """F's merge has landed above a user's rows; before F looks at it, G has finished it and the versions are gone."""
    stage = Stage()
    _, f, _ = stage.flushed(0)
    script = stage.scripts["f"]

    def append_and_fall_behind() -> None:
        stage.user_appends(5_000)
        script.before("get", paths.merges_prefix(stage.contract.making), lambda: _overtake(stage))

    script.before("commit", "table", append_and_fall_behind)
    report = stage.round(f)
    require(len(report.merges) == 1, "F's merge counts:", report)
    stage.check_table()
    stage.check()


def _half_finished() -> Stage:
    stage = Stage()
    _, f, _ = stage.flushed(0)
    _unfinished(stage, stage.topic.partitions[0].records[-1].k, 5_000)
    with suppress(Crashed):
        stage.round(f)
    stage.faults_of("h")
    return stage


def _overtake(stage: Stage) -> None:
    g = stage.flusher("g")
    stage.round(g)
    stage.user_appends(5_001)
    stage.round(g)
    stage.checker.table.cleanup(keep=1)


def _finish_late(stage: Stage) -> None:
    stage.round(stage.flusher("h"))
    stage.check_table()
    stage.check()


def user_appends_what_a_merge_brings() -> None:
    """The user appends a key of the merge, with others, while it is under way; flushes are lost before the follow-up."""
    for lost in (False, True):
        stage = Stage()
        _, f, g = stage.flushed(0, 1)
        keys = [log.records[-1].k for log in stage.topic.partitions]
        _unfinished(stage, keys[0], 5_000, keys[1])
        with suppress(Crashed):
            stage.round(f)
        if lost:
            for key in [*flush_files(stage, 0), *flush_files(stage, 1)]:
                stage.bucket.delete(key)
        stage.round(g)
        stage.check_table()
        stage.check()


def user_compacts_what_shows_twice() -> None:
    """Before the follow-up, a compaction moves the user's row, alone, with others, or together with Kafka's row."""
    for together in ([0, 1], [1, 2], [0, 1, 2]):
        stage = Stage()
        _, f, g = stage.flushed(0)
        k = stage.topic.partitions[0].records[-1].k
        _unfinished(stage, k)
        with suppress(Crashed):
            stage.round(f)
        fragments = [
            fragment.fragment_id for fragment in stage.dataset.newest.fragments
        ]  # merged before, user's, merge's
        stage.checker.table.compact([fragments[at] for at in together])
        stage.user_appends(k)  # after the merge: stays until Kafka's next row
        stage.round(g)
        stage.check_table()
        stage.check()


def user_appends_it_again_behind_the_follow_up() -> None:
    """F dies between the follow-up and the note that it is done; the user appends a row that equals the hidden one."""
    stage = Stage()
    _, f, g = stage.flushed(0)
    k = stage.topic.partitions[0].records[-1].k
    script = stage.scripts["f"]
    script.before("commit", "table", lambda: stage.user_appends(k))
    script.before("commit", "table", lambda: stage.checker.table.compact(), passing=2)
    script.before("put", ".finished", crash)
    with suppress(Crashed):
        stage.round(f)
    stage.user_appends(k)
    stage.round(g)
    stage.check_table()
    stage.check()


def follow_up_loses_every_race() -> None:
    """Each try of a follow-up is lost: the round ends, and the next one does it."""
    stage = Stage()
    _, f, _ = stage.flushed(0)
    k = stage.topic.partitions[0].records[-1].k
    script = stage.scripts["f"]
    script.before("commit", "table", lambda: stage.user_appends(k))
    script.commits += [CommitFault.NONE, *[CommitFault.NEVER_ARRIVED] * 10]
    with stops(StoreUnavailable):
        stage.round(f)
    stage.round(f)
    stage.check_table()
    stage.check()


def finishing_gets_no_verdict() -> None:
    """Whether ``finished`` was written is not known: the round ends, and the next one writes it."""
    stage = Stage()
    _, f, _ = stage.flushed(0)
    stage.scripts["f"].puts.append((".finished", PutFault.NEVER_ARRIVED))
    with stops(StoreUnavailable):
        stage.round(f)
    stage.round(f)
    stage.check_table()
    stage.check()


def _files(stage: Stage) -> set[str]:
    return {fragment.file for fragment in stage.dataset.newest.fragments}


def _lose_added(stage: Stage, before: set[str]) -> None:
    for name in _files(stage) - before:
        stage.dataset.files.pop(name)


def merge_loses_its_files() -> None:
    """A clean-up takes the files of a merge before it is finished: adopted ones are rebuilt, others stop it by name."""
    for combined in (False, True):
        stage = Stage()
        a, f, g = stage.flushed_apart(0, 1)
        if combined:
            stage.append_and_seal(a, 0, 1)
        before = _files(stage)
        _unfinished(stage)
        with suppress(Crashed):
            stage.round(f)
        _lose_added(stage, before)
        if combined:
            with stops(ObjectMissing):
                stage.round(g)
        else:
            stage.round(g)
            stage.check_table()
            stage.check()


def merge_loses_its_files_behind_its_commit() -> None:
    """A clean-up takes the adopted files before the look behind the commit: the same round rebuilds them."""
    stage = Stage()
    _, f, _ = stage.flushed_apart(0, 1)
    before = _files(stage)
    stage.scripts["f"].before("files missing", "table", lambda: _lose_added(stage, before))
    stage.round(f)
    require(not stage.checker.table.files_missing(sorted(_files(stage))), "they are still gone")
    stage.check_table()
    stage.check()


ACCIDENTS: list[Callable[[], None]] = [
    unfinished_merge_is_cleaned_away,
    another_finishes_and_cleans_up_first,
    another_finishes_while_it_is_read,
    another_finishes_before_the_sender_goes_on,
    user_appends_what_a_merge_brings,
    user_compacts_what_shows_twice,
    user_appends_it_again_behind_the_follow_up,
    follow_up_loses_every_race,
    finishing_gets_no_verdict,
    merge_loses_its_files,
    merge_loses_its_files_behind_its_commit,
]
