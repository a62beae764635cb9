"""Old objects of subscriptions go, and nothing else of them does."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.errors import TableReplaced
from lancewal_core.names import paths
from lancewal_core.names.ids import Making
from lancewal_flusher.garbage import subscribed
from lancewal_flusher.garbage.collect_all import look
from lancewal_flusher.garbage.subscribed import KnownSubscriptions, old_objects
from lancewal_reader.table import open_table
from tests.support.pipeline import Pipeline

HOUR_S = 3600


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, seed=2)
    made.produce(30)
    made.merge_all()
    yield made
    made.close()


def aged(pipeline: Pipeline, seconds: float, part: str = "") -> None:
    """All objects of subscriptions with this part in their keys are so much older."""
    for info in pipeline.store.list(paths.SUBSCRIPTIONS):
        if part in info.key:
            then = time.time() - seconds
            os.utime(Path(pipeline.uri) / info.key, (then, then))


def old(pipeline: Pipeline) -> list[str]:
    context = pipeline.flusher()
    return list(old_objects(context, KnownSubscriptions(), context.clock.now_ms()))


def test_old_versions_go_and_the_newest_stay(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribed, "VERSIONS_KEPT", 2)
    table = open_table(pipeline.uri)
    table.subscriptions().create("a")
    for _ in range(4):
        pipeline.produce(5)
        pipeline.ingest()
        table.subscriptions().commit("a", table.receipt())
    assert old(pipeline) == []
    aged(pipeline, 2 * HOUR_S)
    pipeline.produce(5)
    pipeline.ingest()
    table.subscriptions().commit("a", table.receipt())
    found = old(pipeline)
    numbers = [parsed[1] for key in found if (parsed := paths.parse_subscription_version(key)) is not None]
    assert numbers == [2, 3, 4, 5]
    assert len(numbers) == len(found)
    # A listing that leaves one out makes no gap.
    lowest = Path(pipeline.uri) / found[0]
    hidden = lowest.read_bytes()
    pipeline.store.delete(found[:1])
    assert len(old(pipeline)) == 3
    lowest.write_bytes(hidden)
    pipeline.collect()
    assert table.subscriptions().get("a").receipt == str(table.receipt())


def test_what_belongs_to_no_name_goes_a_day_later(pipeline: Pipeline) -> None:
    subscriptions = open_table(pipeline.uri).subscriptions()
    subscriptions.create("kept")
    kept = {info.key for info in pipeline.store.list(paths.SUBSCRIPTIONS) if "/of/" in info.key}
    subscriptions.create("dropped")
    subscriptions.drop("dropped")
    assert old(pipeline) == []
    aged(pipeline, 25 * HOUR_S)
    found = set(old(pipeline))
    assert found
    assert not found & kept
    assert all(paths.parse_subscription_version(key) for key in found)
    assert found <= set(pipeline.collect().deleted_keys)
    assert [one.name for one in subscriptions] == ["kept"]


def test_objects_of_a_former_making_go(pipeline: Pipeline) -> None:
    former = Making("former")
    keys = [paths.subscription_names(1, former), paths.subscription_version("x", 1, former)]
    for key in keys:
        pipeline.store.put_if_absent(key, b"{}")
    foreign = f"{paths.SUBSCRIPTIONS}made/former/else/1.json"
    pipeline.store.put_if_absent(foreign, b"{}")
    open_table(pipeline.uri).subscriptions().create("now")
    assert sorted(old(pipeline)) == sorted(keys)
    pipeline.collect()
    assert pipeline.store.get(foreign) is not None
    assert [one.name for one in open_table(pipeline.uri).subscriptions()] == ["now"]


def test_a_flusher_of_a_former_table_deletes_nothing(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    open_table(pipeline.uri).subscriptions().create("of-the-new-table")

    def replaced(store: object, contract: object) -> None:
        raise TableReplaced("another table was made here")

    monkeypatch.setattr(subscribed, "check_present", replaced)
    with pytest.raises(TableReplaced):
        old(pipeline)


def test_a_dry_run_knows_what_subscriptions_hold(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, seed=4, history_window_s=HOUR_S, version_window_s=HOUR_S)
    pipeline.produce(30)
    pipeline.merge_all()
    subscriptions = open_table(pipeline.uri).subscriptions()
    subscriptions.create("a")
    for _ in range(3):
        pipeline.produce(30)
        pipeline.merge_all()
    pipeline.clock.ahead_s += 24 * HOUR_S
    held = look(pipeline.flusher())
    subscriptions.drop("a")
    free = look(pipeline.flusher())
    assert sum(one.last - one.first for one in held.trimmed) < sum(one.last - one.first for one in free.trimmed)
    assert held.expired_versions < free.expired_versions
    pipeline.close()
