"""The feed, folded by a dict, is the table that DuckDB computes from the CSV file; its order is that of the events."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_demo.comparison import compare
from lancewal_demo.expected import expected_by_carrier, expected_rows
from lancewal_demo.feed import COLUMNS, PRIMARY_KEY, REGION_KEY, SENT_AT, Feed, Message
from lancewal_demo.flights import write_flights

FLIGHTS = 20_000
Key = tuple[object, ...]


@pytest.fixture(scope="module")
def csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_flights(tmp_path_factory.mktemp("flights") / "flights.csv", FLIGHTS)


@pytest.fixture(scope="module")
def messages(csv: Path) -> list[Message]:
    feed = Feed.read(csv)
    found = list(feed.messages())
    assert len(found) == len(feed)
    return found


def key_of(message: Message) -> Key:
    return tuple(message.columns[name] for name in PRIMARY_KEY)


def fold(messages: list[Message]) -> list[dict[str, Any]]:
    rows: dict[Key, dict[str, Any]] = {}
    for message in messages:
        key = key_of(message)
        match message.operation:
            case "upsert":
                rows[key] = dict.fromkeys(COLUMNS) | message.columns
            case "patch":
                rows[key] |= message.columns
            case "delete":
                del rows[key]
    for row in rows.values():
        row["flight_date"] = datetime.date.fromisoformat(row["flight_date"])
        row["time_hour"] = datetime.datetime.fromisoformat(row["time_hour"])
    return list(rows.values())


def test_the_folded_feed_is_what_duckdb_expects(csv: Path, messages: list[Message]) -> None:
    expected = expected_rows(csv)
    found = pa.Table.from_pylist(fold(messages), expected.schema)
    result = compare("fold", expected, found)
    assert result.holds, str(result)
    assert 15_000 < result.rows < FLIGHTS


def test_expected_rows_are_the_table_s_columns_but_one(csv: Path) -> None:
    assert expected_rows(csv).column_names == [name for name in COLUMNS if name != SENT_AT]


def test_the_figures_by_carrier_are_those_of_the_rows(csv: Path) -> None:
    delays: dict[str, list[int]] = {}
    for row in expected_rows(csv).to_pylist():
        delays.setdefault(row["carrier"], []).append(row["dep_delay"])
    figures = {row["carrier"]: row for row in expected_by_carrier(csv).to_pylist()}
    assert figures.keys() == delays.keys()
    for carrier, found in delays.items():
        assert figures[carrier]["flights"] == len(found)
        assert figures[carrier]["departure_delay_sum"] == sum(found)
        assert figures[carrier]["departure_delay_mean"] == sum(found) / len(found)


def test_messages_come_in_the_order_of_their_events(messages: list[Message]) -> None:
    times = [message.at for message in messages]
    assert times == sorted(times)


def test_each_flight_lives_one_life(csv: Path, messages: list[Message]) -> None:
    lives: dict[Key, list[str]] = {}
    for message in messages:
        what = "arrival" if "arr_time" in message.columns else message.operation
        lives.setdefault(key_of(message), []).append(what)
    counts = Counter(map(tuple, lives.values()))
    assert set(counts) == {
        ("upsert", "patch", "arrival"),
        ("upsert", "patch"),  # never heard of again
        ("upsert", "delete"),
    }
    assert counts.total() == FLIGHTS
    assert counts["upsert", "delete"] == FLIGHTS - expected_rows(csv).num_rows


def test_a_schedule_is_published_at_least_two_days_ahead(messages: list[Message]) -> None:
    for message in messages:
        if message.operation == "upsert":
            hour = datetime.datetime.fromisoformat(message.columns["time_hour"]).timestamp()
            assert 2 * 86400 <= hour - message.at < 3 * 86400


def test_explicit_nulls_are_in_the_feed(messages: list[Message]) -> None:
    assert any("arr_delay" in m.columns and m.columns["arr_delay"] is None for m in messages)


def test_keys_are_the_canonical_region_key(messages: list[Message]) -> None:
    for message in messages:
        assert message.key == encode_region_key(*(message.columns[name] for name in REGION_KEY))
        assert json.loads(message.key) == [message.columns["origin"], message.columns["carrier"]]


def test_a_part_of_the_feed_is_that_part(csv: Path, messages: list[Message]) -> None:
    feed = Feed.read(csv)
    assert list(feed.messages(100, 250)) == messages[100:250]
    assert list(feed.messages(len(feed) - 5)) == messages[-5:]
