"""Subscriptions as a status shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.names import paths
from lancewal_core.table.subscriptions.stored import names_family
from lancewal_reader.table import open_table
from lancewal_tables.commands.status import _subscription
from lancewal_tables.status.subscribed import subscriptions_of
from tests.support.pipeline import Pipeline

DAY_S = 24 * 3600


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(
        tmp_path, seed=3, history_window_s=0, version_window_s=0, grace_s=0, subscription_hold_s_max=2 * DAY_S
    )
    made.produce(40)
    made.merge_all()
    yield made
    made.close()


def looked(pipeline: Pipeline) -> tuple[list[str], list[str]]:
    opened = pipeline.flusher()
    found, problems = subscriptions_of(opened, pipeline.clock.now_ms())
    return [_subscription(one) for one in found], problems


def test_lags(pipeline: Pipeline) -> None:
    assert looked(pipeline) == ([], [])
    table = open_table(pipeline.uri)
    made = table.subscriptions().create("s")
    begins = f"consumer  subscription s at version {made.version}"
    assert looked(pipeline) == ([f"{begins}, 0 s behind"], [])
    for _ in range(2):
        pipeline.produce(40)
        pipeline.merge_all()
    pipeline.clock.ahead_s += DAY_S
    ((line,), problems) = looked(pipeline)
    assert problems == []
    assert line.startswith(f"{begins}, 864")
    pipeline.clock.ahead_s += DAY_S
    ((line,), _) = looked(pipeline)
    assert line.endswith("s behind: it holds nothing more")
    for _ in range(2):
        pipeline.collect()
    assert looked(pipeline) == ([f"{begins}, something that it needs is gone: it holds nothing more"], [])


def test_damage_is_a_problem(pipeline: Pipeline) -> None:
    subscriptions = open_table(pipeline.uri).subscriptions()
    subscriptions.create("s")
    subscriptions.create("sound")
    newest = min(info.key for info in pipeline.store.list(paths.subscription_names_prefix(None)))
    ids = json.loads(pipeline.store.get(newest) or b"")["ids"]
    for info in pipeline.store.list(paths.subscription_prefix(ids["s"], None)):
        (Path(pipeline.uri) / info.key).write_bytes(b"{}")
    found, problems = looked(pipeline)
    assert [line.split()[2] for line in found] == ["sound"]
    (problem,) = problems
    assert problem.startswith(
        "subscription s cannot be read, so garbage collection keeps all that it may need: object_"
    )
    for version in (1, 2):
        (Path(pipeline.uri) / names_family(None).key(version)).write_bytes(b"")
    assert looked(pipeline)[1][0].startswith("the list of subscriptions cannot be read: object_corrupt: ")
