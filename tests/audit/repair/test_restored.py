"""``lancewal repair restored``: after a user's restore, rows merged since are dropped or merged again; nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_audit.repair.restored import plan_restored, repair_restored
from lancewal_core.errors import RepairRefused, TableRestored, VersionGone
from lancewal_core.region import transitions
from lancewal_core.region.flushes.manifest import read_flushed_generation
from lancewal_core.region.state import GenerationState
from lancewal_core.table.protocol import fragment_files
from lancewal_flusher.garbage import collect as gc
from lancewal_flusher.garbage import find as garbage
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.support.indexes import newest_state
from tests.support.pipeline import Pipeline, by_key
from tests.support.repairs import Crash, CrashingStore, check_merged, check_strong, command, dry, repairing

ADOPT = MergeLimits(adopt_rows=1)


class Restored:
    """Two states in the table, a third durable, then the first restored."""

    def __init__(self, folder: Path, **contract: Any) -> None:
        self.pipeline = pipeline = Pipeline(folder, partitions=2, seed=11, **contract)
        pipeline.produce(150)
        pipeline.merge_all(ADOPT)
        self.first = pipeline.table.newest().version
        self.first_rows = dict(pipeline.oracle)
        pipeline.produce(200)
        pipeline.merge_all(ADOPT)
        self.second = pipeline.table.newest().version

    def tail(self, base: str) -> None:
        """More records, on top of the rows that are expected to be in force then."""
        if base == "drop":
            self.pipeline.oracle = dict(self.first_rows)
        self.pipeline.produce(100)
        self.pipeline.ingest()
        self.pipeline.settle()

    def restore(self, version: int | None = None) -> None:
        earlier: Any = lance.dataset(self.pipeline.uri, version=version or self.first)
        earlier.restore()

    def stopped(self) -> None:
        """Strong reads and merges stop by name."""
        with pytest.raises(TableRestored, match="lancewal repair restored"):
            open_table(self.pipeline.uri).to_arrow()
        with pytest.raises(TableRestored):
            self.pipeline.merge()

    def goes_on(self) -> None:
        pipeline = self.pipeline
        check_strong(pipeline)
        pipeline.produce(60)
        pipeline.merge_all(ADOPT)
        check_strong(pipeline)
        check_merged(pipeline)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Restored]:
    made = Restored(tmp_path)
    yield made
    made.pipeline.close()


@pytest.mark.parametrize("choice", ["drop", "replay"])
def test_after_a_restore(world: Restored, choice: str) -> None:
    world.tail(choice)
    world.restore()
    world.stopped()
    said = dry(world.pipeline, "restored", "--rows-since", choice)
    assert f"is a restore of version {world.first}" in said
    assert ("are merged again" in said) == (choice == "replay")
    world.stopped()
    assert f"{choice} is recorded" in command(world.pipeline, "restored", "--rows-since", choice)
    world.goes_on()
    said = command(world.pipeline, "restored", "--rows-since", choice)
    assert f"table version {world.second + 1} is decided: {choice}. No other" in said
    assert "nothing to do" in said
    other = {"drop": "replay", "replay": "drop"}[choice]
    with pytest.raises(RepairRefused, match=f"is decided: {choice}, .*{other} is no longer possible"):
        command(world.pipeline, "restored", "--rows-since", other)


def test_replay_makes_lost_flushes_anew(world: Restored) -> None:
    """A clean-up after the restore takes the files that only the dropped versions refer to."""
    world.tail("replay")
    with repairing(world.pipeline) as context:
        world.restore()
        plan = plan_restored(context, "replay")
    shared = set[str]()
    for region, records in plan.again.items():
        flushed = read_flushed_generation(world.pipeline.store, records[0].flush or "", region, records[0].generation)
        shared |= {name for fragment in flushed.fragments for name in fragment_files(fragment)}
    for name in shared:
        (Path(world.pipeline.uri) / "data" / name).unlink()
    command(world.pipeline, "restored", "--rows-since", "replay")
    world.goes_on()


def test_replay_takes_generations_back_from_history_pages(world: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "HISTORY_PAGE_AT", 3)
    monkeypatch.setattr(garbage, "HISTORY_PAGE_REST", 1)
    world.pipeline.collect()
    assert world.pipeline.objects("history/00000000000000000001.binpb") or list(
        (Path(world.pipeline.uri) / "_lancewal").rglob("history/*")
    )
    world.tail("replay")
    world.restore()
    command(world.pipeline, "restored", "--rows-since", "replay")
    world.pipeline.collect()  # what waits again stays in the index
    world.goes_on()
    world.pipeline.collect()
    world.goes_on()


def test_replay_is_refused_where_the_history_window_is_over(tmp_path: Path) -> None:
    world = Restored(tmp_path, history_window_s=1, grace_s=0)
    world.tail("drop")
    world.pipeline.clock.ahead_s = 100.0
    world.pipeline.collect()
    world.restore()
    with pytest.raises(RepairRefused, match=r"It is trimmed.*Only --rows-since drop is possible") as refused:
        command(world.pipeline, "restored", "--rows-since", "replay")
    assert "receipt" not in str(refused.value)
    command(world.pipeline, "restored", "--rows-since", "drop")
    world.goes_on()
    world.pipeline.close()


def test_replay_is_refused_where_neither_flush_nor_log_is_left(world: Restored) -> None:
    world.tail("drop")
    world.restore()
    with repairing(world.pipeline) as context:
        record = next(iter(plan_restored(context, "replay").again.values()))[0]
    (Path(world.pipeline.uri) / (record.flush or "")).unlink()
    for path in world.pipeline.objects(".arrow"):
        if record.log in str(path):
            path.unlink()
    with pytest.raises(RepairRefused, match="cannot be read any more"):
        command(world.pipeline, "restored", "--rows-since", "replay")
    world.stopped()


def test_replay_is_refused_where_keys_have_moved_since(world: Restored) -> None:
    world.restore()
    with repairing(world.pipeline) as context:
        contract = context.contract.model_copy(update={"altered_at": (10_000, 10_000)})
        with pytest.raises(RepairRefused, match="contract has changed"):
            plan_restored(replace(context, contract=contract), "replay")


def test_a_restore_that_was_restored_itself(world: Restored) -> None:
    """The user took it back: nothing is dropped, nothing is to be merged again, whatever is chosen."""
    world.tail("replay")
    world.restore()
    world.restore(world.second)
    said = command(world.pipeline, "restored", "--rows-since", "replay")
    assert said.count("is a restore of") == 2
    assert "nothing is merged again" in said
    world.goes_on()


def test_a_second_restore_after_the_first_was_decided(world: Restored) -> None:
    world.restore()
    command(world.pipeline, "restored", "--rows-since", "replay")
    world.goes_on()
    world.pipeline.oracle = dict(world.first_rows)
    world.restore()
    world.stopped()
    command(world.pipeline, "restored", "--rows-since", "drop")
    world.goes_on()


@pytest.mark.parametrize(
    ("at", "after", "then"), [(1, False, "drop"), (1, True, "replay"), (2, False, "drop"), (2, True, "replay")]
)
def test_a_crash_leaves_the_decision_open(world: Restored, at: int, after: bool, then: str) -> None:
    """The page of both regions, and the record: two puts."""
    world.tail(then)
    world.restore()
    with repairing(world.pipeline) as planning:
        plan = plan_restored(planning, "replay")
        with (
            repairing(world.pipeline, CrashingStore(world.pipeline.store, at, after=after)) as context,
            pytest.raises(Crash),
        ):
            repair_restored(context, plan)
    decided = at == 2 and after
    if decided:
        assert "nothing to do" in command(world.pipeline, "restored", "--rows-since", then)
    else:
        world.stopped()
        command(world.pipeline, "restored", "--rows-since", then)
    world.goes_on()


def test_of_two_persons_one_decides(world: Restored) -> None:
    world.tail("drop")
    world.restore()
    with repairing(world.pipeline) as context:
        plan = plan_restored(context, "replay")
        command(world.pipeline, "restored", "--rows-since", "drop")
        with pytest.raises(RepairRefused, match="another decision was recorded"):
            repair_restored(context, plan)
    world.goes_on()


def test_a_merge_from_before_the_restore_lands_nowhere(world: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flusher that planned, then slept through restore and decision."""
    world.tail("drop")
    world.pipeline.hand_over()
    pipeline = world.pipeline
    commit = pipeline.table.commit
    slept: list[Callable[[], object]] = [
        world.restore,
        lambda: command(pipeline, "restored", "--rows-since", "drop"),
    ]

    def late(*arguments: Any) -> Any:
        while slept:
            slept.pop(0)()
        return commit(*arguments)

    monkeypatch.setattr(pipeline.table, "commit", late)
    report = pipeline.merge(ADOPT)
    assert report.refused
    world.goes_on()


def test_a_collector_from_before_the_restore_trims_nothing_that_is_merged_again(tmp_path: Path) -> None:
    """It chose its boundary by the old watermarks, and swaps after the decision."""
    world = Restored(tmp_path, history_window_s=50, grace_s=0)
    world.tail("replay")
    pipeline = world.pipeline
    done: list[str] = []

    def late(*arguments: Any) -> Any:
        if not done:
            done.append("restored")
            world.restore()
            pipeline.clock.ahead_s = 0.0
            command(pipeline, "restored", "--rows-since", "replay")
        index, boundary, write_id, paged = arguments
        newer = newest_state(pipeline.store, pipeline.clock, index.region)
        assert newer is not None
        return transitions.trim(newer, boundary, write_id, paged)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gc, "trim", late)
        pipeline.clock.ahead_s = 100.0
        pipeline.collect()
    assert done
    world.goes_on()
    pipeline.close()


def test_a_receipt_from_before_the_restore_gives_its_rows_again(world: Restored) -> None:
    """Its version is cleaned up: no version behind the restore stands in for it."""
    seen = open_table(world.pipeline.uri).to_arrow()
    receipt, rows = receipt_of(seen.schema), by_key(seen)
    world.tail("replay")
    world.restore()
    command(world.pipeline, "restored", "--rows-since", "replay")
    assert by_key(open_table(world.pipeline.uri).to_arrow(at=receipt)) == rows
    world.goes_on()
    lance.dataset(world.pipeline.uri).cleanup_old_versions(timedelta(0))
    with pytest.raises(VersionGone):
        open_table(world.pipeline.uri).to_arrow(at=receipt)
    state = newest_state(world.pipeline.store, world.pipeline.clock, world.pipeline.contract.regions[0])
    assert state is not None
    assert {r.state for r in state.generations[:-1]} == {GenerationState.MERGED}


def test_no_version_behind_a_restore_stands_in_for_one_before_it(world: Restored) -> None:
    """Both are cleaned up; what is left of the restore is the decision, which looks as a merge's record does."""
    pipeline = world.pipeline
    seen = open_table(pipeline.uri).to_arrow(consistency="eventual")
    receipt = receipt_of(seen.schema)
    world.restore()
    assert pipeline.table.newest().version == receipt.version + 1
    command(pipeline, "restored", "--rows-since", "drop")
    lance.dataset(pipeline.uri).update_config({"by": "a user"})
    lance.dataset(pipeline.uri).cleanup_old_versions(timedelta(0))
    with pytest.raises(VersionGone):
        open_table(pipeline.uri).to_arrow(at=receipt)


def test_pages_from_before_a_replay_do_not_shorten_the_history_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "HISTORY_PAGE_AT", 3)
    monkeypatch.setattr(garbage, "HISTORY_PAGE_REST", 1)
    pipeline = Pipeline(tmp_path, partitions=1, seed=11, history_window_s=3600, grace_s=0)
    first = pipeline.table.newest().version  # what is merged again begins where an old page does
    for _ in range(7):
        pipeline.produce(30)
        pipeline.merge_all(ADOPT)
    pipeline.collect()
    pipeline.clock.ahead_s = 3000.0
    restored: Any = lance.dataset(pipeline.uri, version=first)
    restored.restore()
    command(pipeline, "restored", "--rows-since", "replay")
    pipeline.collect()
    strong = open_table(pipeline.uri).to_arrow()
    receipt = receipt_of(strong.schema)
    pipeline.merge(ADOPT)
    pipeline.merge(ADOPT)
    pipeline.produce(30)
    pipeline.merge_all(ADOPT)
    pipeline.collect()
    pipeline.clock.ahead_s = 3700.0  # they were merged again 700 s ago
    pipeline.collect()
    again = open_table(pipeline.uri).to_arrow(at=receipt.to_json())
    assert by_key(again) == by_key(strong)
    pipeline.close()
