"""Interleavings around a merge."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tests.simulation.script import Crashed, crash
from tests.simulation.stage import Stage


def two_flushers_merge_the_same() -> None:
    """F has planned a merge; before it commits, G merges the same generations."""
    stage = Stage()
    _, f, g = stage.flushed(0)
    stage.scripts["f"].before("commit", "table", lambda: stage.round(g))
    stage.round(f)
    stage.check_table()
    stage.check()


def late_commit_after_a_clean_up() -> None:
    """F has planned; G merges the same, the user appends and cleans up: only the newest version is left."""
    stage = Stage()
    _, f, g = stage.flushed(0)

    def merge_and_clean_up() -> None:
        stage.round(g)
        stage.user_appends(5_000)
        stage.round(g)
        stage.checker.table.cleanup(keep=1)

    stage.scripts["f"].before("commit", "table", merge_and_clean_up)
    stage.round(f)
    stage.check_table()
    stage.check()


def merge_is_left_unfinished() -> None:
    """A user appends a key of the merge while it is under way; the flusher dies before the follow-up; time passes."""
    stage = Stage()
    a, f, g, c = stage.member("a", 0, 1), stage.flusher("f"), stage.flusher("g"), stage.flusher("c")
    stage.append_and_seal(a, 0)
    stage.round(f)
    (k,) = stage.send(0)
    stage.step(a, 2)
    stage.seal(a)
    script = stage.scripts["f"]
    script.before("commit", "table", lambda: stage.user_appends(k))
    script.before("commit", "table", crash, passing=2)
    with suppress(Crashed):
        stage.round(f)
    stage.append_and_seal(a, 0)
    stage.collect(c)
    stage.round(g)
    stage.check_table()
    stage.check()


def another_merges_while_it_looks() -> None:
    """F has asked for the indexes; before it asks for the newest version, two generations are flushed, and G merges them."""
    stage = Stage()
    a, f, g = stage.flushed(0)
    stage.round(f)

    def merge_two() -> None:
        for _ in range(2):
            stage.append_and_seal(a, 0)
        stage.round(g)

    stage.scripts["f"].before("newest", "table", merge_two)
    stage.round(f)
    stage.check_table()
    stage.check()


SCENARIOS: dict[Callable[[], None], tuple[str, str]] = {
    two_flushers_merge_the_same: ("no sentinel", "a key shows twice"),
    late_commit_after_a_clean_up: ("commit by dataset object", "a key shows twice"),
    another_merges_while_it_looks: ("indexes before a merge was known", "the state found ends below generation"),
    merge_is_left_unfinished: ("marked before the follow-up", "a key shows twice|never finished"),
}
