"""Snapshots of tables that one topic feeds: at the same positions, or none at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.table.snapshots import Snapshot, snapshots
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.snapshots import drop_snapshot
from lancewal_reader.point.at import point_of
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import reads_of
from lancewal_tables.snapshots import together
from lancewal_tables.snapshots.make import Made, make_snapshot
from lancewal_tables.snapshots.together import Opened, make_together
from tests.support.pipeline import Pipeline, by_key


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Pipeline]]:
    """The same records; the second has merged all of them and has more, the first stands behind it with part of them."""
    first, second = (Pipeline(tmp_path / name, seed=7, seal_rows=20, batch=15) for name in ("a", "b"))
    for made in (first, second):
        made.produce(60)
        made.merge_all()
        made.produce(40)
        made.ingest()
    second.produce(50)
    second.merge_all()
    yield [first, second]
    first.close()
    second.close()


def opened(pipelines: list[Pipeline]) -> list[Opened]:
    contexts = [made.flusher() for made in pipelines]
    return [(context, reads_of(context, made.uri)) for context, made in zip(contexts, pipelines, strict=True)]


def test_all_are_cut_at_what_each_has_durable(two: list[Pipeline]) -> None:
    made = make_together(opened(two), "eom")
    positions = [Receipt.parse(one.snapshot.receipt).positions for one in made]
    assert positions[0] == positions[1] != {}
    for pipeline in two:
        rows = lance.dataset(pipeline.uri).checkout_version(("eom", None)).to_table()
        assert by_key(rows) == two[0].oracle != two[1].oracle


def test_at_positions_and_at_nothing_else(two: list[Pipeline]) -> None:
    make_together(opened(two), "empty", point_of("positions:0=0,1=0,2=0"))
    for pipeline in two:
        assert lance.dataset(pipeline.uri).checkout_version(("empty", None)).count_rows() == 0
    for at in ("version:1", "timestamp:2026-01-31T00:00:00Z"):
        with pytest.raises(InvalidInput, match="must be positions"):
            make_together(opened(two), "other", point_of(at))


def test_if_one_cannot_be_made_none_is_left(two: list[Pipeline]) -> None:
    tables = opened(two)
    make_snapshot(*tables[1], "eom")
    with pytest.raises(InvalidInput, match="there is a snapshot eom already"):
        make_together(tables, "eom")
    assert snapshots(two[0].table) == []
    assert [found.name for found in snapshots(two[1].table)] == ["eom"]


def test_what_somebody_else_made_meanwhile_of_that_name_is_left(
    two: list[Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = opened(two)
    make_snapshot(*tables[1], "eom")
    others: list[Snapshot] = []

    def make(context: FlusherContext, *wanted: Any) -> Made:
        if context is tables[1][0]:
            drop_snapshot(two[0].table, "eom")
            others.append(make_snapshot(*tables[0], "eom", for_ms=86_400_000).snapshot)
        return make_snapshot(context, *wanted)

    monkeypatch.setattr(together, "make_snapshot", make)
    with pytest.raises(InvalidInput, match="there is a snapshot eom already"):
        make_together(tables, "eom")
    assert snapshots(two[0].table) == others != []


def test_tables_of_other_topics_share_no_positions(two: list[Pipeline], tmp_path: Path) -> None:
    other = Pipeline(tmp_path / "c", partitions=4)
    with pytest.raises(InvalidInput, match="share no positions"):
        together.common_point(opened([two[0], other]), None)
    other.close()
