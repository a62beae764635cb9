"""A partition that stands still is seen, whatever the reason is: the rule, and the service behind an open transaction."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from lancewal_core.names.ids import Position, Region
from lancewal_core.settings.load import Settings
from lancewal_demo.stack import KafkaBroker
from lancewal_ingest.retention import topic_watch
from lancewal_ingest.service import standstill
from lancewal_ingest.service.standstill import STANDS_S, Standstill
from lancewal_tables.define.create import create_table
from tests.ingest.service.test_service import get, make_topic, metric, produce, serving, settings_tree, until
from tests.support.regions import by_number, numbers, region


def at(**positions: int) -> dict[Region, Position]:
    return {region(int(name[1:])): Position(position) for name, position in positions.items()}


def problem_of(still: Standstill) -> str | None:
    return still.problem


def test_who_stands_still() -> None:
    still = Standstill()
    still.look(100.0, at(p0=5, p1=5, p2=5, p3=5), at(p0=9, p1=5, p2=9), at(p0=9, p1=5, p2=5))
    assert (numbers(still.waiting), problem_of(still)) == ([0, 2], None)  # nothing waits of 1; of 3 nothing is known
    still.look(100.0 + STANDS_S, at(p0=5, p1=5, p2=5), at(p0=12, p1=6, p2=9), at(p0=12, p1=6, p2=5))
    assert problem_of(still) == (
        "positions do not move: partition 0 at 5 for 60 s (records up to 12 wait), partition 2 at 5 for 60 s (records up to 9 "
        "wait, after a transaction that is still open)"
    )
    still.look(101.0 + STANDS_S, at(p0=6, p1=5), at(p0=12, p1=6), at(p0=12, p1=6))
    assert problem_of(still) is None  # 0 has moved, 1 waits for a second, 2 is ours no more
    assert {p: found.since for p, found in by_number(still.waiting).items()} == {
        0: 101.0 + STANDS_S,
        1: 100.0 + STANDS_S,
    }


def test_a_partition_behind_an_open_transaction_is_shown(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standstill, "STANDS_S", 0.5)
    monkeypatch.setattr(topic_watch, "TOPIC_CHECK_S", 0.1)
    make_topic(kafka, topic_name, 1)
    make_topic(kafka, f"{topic_name}.dead-letters", 1)
    settings = Settings.model_validate(settings_tree(kafka, topic_name, tmp_path))
    create_table(settings)
    open_ = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic_name})
    open_.init_transactions(60)
    open_.begin_transaction()
    open_.produce(topic_name, b"{}", partition=0)
    assert open_.flush(60) == 0
    produce(kafka, topic_name, 20)
    with serving(settings) as running:
        until(lambda: "partition_stands: positions do not move" in get(running.port, "/readyz")[1])
        status, text = get(running.port, "/readyz")
        assert status == 503
        assert "partition 0 at 0 for" in text
        assert "records up to 21 wait, after a transaction that is still open" in text
        place = {"table": "table", "partition": "0"}
        seconds = metric(running.port, "lancewal_ingest_standing_seconds", **place)
        assert seconds is not None
        assert seconds >= 0.5, "as /readyz says"
        assert metric(running.port, "lancewal_ingest_lag_records", **place) == 21
        open_.abort_transaction(60)
        until(lambda: get(running.port, "/readyz")[0] == 200)
        until(lambda: metric(running.port, "lancewal_ingest_standing_seconds", **place) == 0)
