"""A tag keeps the version that a commit was computed from while a clean-up takes those above: Lance compares with none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_core.errors import MergeUnproven
from lancewal_flusher.commit import send as commits
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.merge import MergeResult, merge_next
from lancewal_flusher.upkeep.compaction import CompactionResult, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from tests.support.flusher_tables import OPEN_ROWS, FlusherTable, ScriptedTable, delete, upsert, upserts

LIMITS = CompactionLimits(fragments_min=2, growth=1.0, deleted_share=0.1, groups_max=1)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    """Four fragments; the sentinel has the first ten rows."""
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(10)))
    made.round()
    for first in (100, 200, 300):
        made.generation(0, upserts(range(first, first + 20)))
        made.round()
    yield made
    made.close()


def meanwhile(table: FlusherTable, act: Callable[[], object]) -> Callable[[], None]:
    """The newest version is tagged, ``act`` makes another, and all between it and the newest are cleaned up."""

    def happens() -> None:
        table.dataset.tags.create("keep", table.dataset.version)
        act()
        table.user_append(1, [700], in_model=True)
        context = table.context()
        newest, in_force = context.watermarks.newest()
        context.watermarks.record(in_force, newest.version, "checkpoint")  # as any flusher's round does
        table.clean_up()

    return happens


def compaction(context: FlusherContext) -> CompactionResult:
    return compact_next(context, LIMITS, FileSizes(), with_sentinel=False)


def merge(context: FlusherContext) -> MergeResult:
    return merge_next(context, OPEN_ROWS)


def merged_by_another(table: FlusherTable) -> None:
    table.generation(0, [upsert(105, a=9), delete(106)])
    table.round()


def restore_below(table: FlusherTable, error: MergeUnproven) -> None:
    """What the message says is to be done."""
    below: Any = lance.dataset(table.uri, version=int(str(error.where["version"])) - 1)
    assert f"Restore version {below.version}" in str(error)
    below.restore()


def test_a_compaction_says_that_it_has_undone_a_merge(table: FlusherTable) -> None:
    raced = ScriptedTable(table.uri)
    raced.before = [meanwhile(table, lambda: merged_by_another(table))]
    with pytest.raises(MergeUnproven, match=r"undoes what versions in between.* did to fragments \[1\]") as found:
        compaction(table.context(raced))
    restore_below(table, found.value)
    table.check()


@pytest.mark.parametrize("act", ["delete", "update"])
def test_a_merge_says_that_it_has_undone_what_a_user_did(table: FlusherTable, act: str) -> None:
    table.generation(0, [upsert(105, a=9), delete(106)])
    raced = ScriptedTable(table.uri)
    by_user = {
        "delete": lambda: table.user_delete(0, 107),
        "update": lambda: table.dataset.update({"a": "777"}, where="region = 'r0' and id = 107"),
    }
    raced.before = [meanwhile(table, by_user[act])]
    with pytest.raises(MergeUnproven, match=r"fragments \[1\]"):
        merge(table.context(raced))
    with pytest.raises(MergeUnproven, match=r"fragments \[1\]"):  # and whoever comes next, before it builds on it
        table.round()


def test_a_follow_up_says_that_it_has_undone_what_a_user_did(table: FlusherTable) -> None:
    raced = ScriptedTable(table.uri)
    context = table.context(raced)
    table.generation(0, [upsert(50, a=1)])
    raced.before = [lambda: table.user_append(0, [50, *range(60, 70)], in_model=True)]
    merge(context)
    raced.before = [meanwhile(table, lambda: table.user_delete(0, 65))]
    with pytest.raises(MergeUnproven, match="did to fragments"):
        finish_newest(context)


def test_a_user_s_delete_in_the_sentinel_is_not_undone_silently(table: FlusherTable) -> None:
    """The commit lists it, though it changes nothing in it."""
    table.generation(0, [upsert(105, a=9)])
    raced = ScriptedTable(table.uri)
    raced.before = [meanwhile(table, lambda: table.user_delete(0, 3))]
    with pytest.raises(MergeUnproven, match=r"fragments \[0\]"):
        merge(table.context(raced))


def test_nothing_is_sent_where_a_version_in_between_is_gone(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts = [meanwhile(table, lambda: table.user_delete(0, 107))]
    real = commits.checkpoint

    def late(*arguments: Any) -> None:
        real(*arguments)
        while acts:
            acts.pop()()

    monkeypatch.setattr(commits, "checkpoint", late)
    table.generation(0, [upsert(105, a=9), delete(106)])
    refused = merge(table.context())
    assert isinstance(refused, Refused)
    assert "was cleaned up" in refused.reason
    table.round()
    table.check()


def test_what_others_add_under_a_tag_disturbs_nobody(table: FlusherTable) -> None:
    table.generation(0, [upsert(105, a=9), delete(106)])
    raced = ScriptedTable(table.uri)
    raced.before = [meanwhile(table, lambda: table.user_append(1, [500], in_model=True))]
    merge(table.context(raced))
    finish_newest(table.context())
    table.round()
    table.check()
