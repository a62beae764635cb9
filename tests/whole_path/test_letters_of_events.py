"""Dead letters of change events: corrected or as they are, they are produced again, and the table is that of the source.

``verify`` compares the table with the topic and the log, in which heartbeats, transactions and letters lie between the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from lancewal_core.settings.sections import PLACEHOLDER
from lancewal_demo.stack import KafkaBroker
from tests.whole_path.feed import COLUMNS, PARTITIONS, Record
from tests.whole_path.test_bad_records import headers_of, read_letters
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

OLD_KEY = ("__debezium.oldkey", b'{"customer":"before","id":1}')


def row(number: int, **columns: object) -> dict[str, Any]:
    return {**dict.fromkeys(COLUMNS), "customer": f"customer-{number}", "id": number, "tags": ["x"], **columns}


def key(of: Mapping[str, object]) -> bytes:
    return json.dumps({"customer": of["customer"], "id": of["id"]}, separators=(",", ":")).encode()


def event(op: str, after: object) -> bytes:
    return json.dumps({"before": None, "after": after, "source": {"ts_ms": 1}, "op": op}).encode()


def write(world: World, number: int) -> None:
    """What a connector writes about some rows: each kind of record once."""
    feed = world.feed
    first, second, third = row(number, status="read"), row(number + 1, status="made"), row(number + 2)
    for op, one in (("r", first), ("c", second), ("c", third)):
        feed.send_raw(event(op, one), key(one), record=Record("upsert", one))
    left_out = {"customer": second["customer"], "id": second["id"], "count": 7, "amount": None, "tags": ["y"]}
    changed = Record("patch", left_out)
    feed.send_raw(event("u", {**second, **left_out, "status": PLACEHOLDER}), key(second), record=changed)
    feed.send_raw(b'{"ts_ms":1700000000000}', b"{}", partition=number % PARTITIONS)
    feed.send_raw(b'{"status":"BEGIN","id":"1:2","ts_ms":1,"event_count":null,"data_collections":null}', b"{}")
    gone = Record("delete", {"customer": third["customer"], "id": third["id"]})
    feed.send_raw(event("d", None), key(third), record=gone)
    feed.send_raw(None, key(third), record=gone)


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that becomes a letter, and what is made of it."""

    kind: str
    value: bytes
    key: bytes
    corrected: bytes
    row: dict[str, Any]
    partition: int = -1


def test_a_letter_of_an_event_is_produced_again(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = make_world(
        kafka, topic_name, tmp_path, seed, region_key=("customer", "id"),
        table={"format": {"key": "json-compact", "envelope": "debezium"}, "on_misrouted": "dead-letter"},
    )  # fmt: skip
    for number in range(0, 30, 3):
        write(world, number)
    bad, astray = row(100), row(101, status="astray")
    belongs, _ = world.feed.send_raw(event("c", row(101)), key(astray), record=Record("upsert", row(101)))
    wrong = event("c", {**bad, "count": "many"})
    elsewhere = (belongs + 1) % PARTITIONS
    sent = [
        Sent("type", wrong, key(bad), event("c", {**bad, "count": 5}), {**bad, "count": 5}),
        Sent("envelope", event("u", None), key(bad), event("u", {**bad, "count": 6}), {**bad, "count": 6}),
        Sent("misrouted", event("u", astray), key(astray), event("u", astray), astray, elsewhere),
    ]
    places = [world.feed.send_raw(one.value, one.key, [OLD_KEY], one.partition) for one in sent]
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    world.check_strong()

    sources = [f"{topic_name}-{partition}-{offset}" for partition, offset in places]
    letters = dict[object, Message]()
    for letter in read_letters(world, f"{topic_name}.dead-letters", set(sources)):
        letters[headers_of(letter)[-1][1]] = letter
    for source, one in zip(sources, sent, strict=True):
        letter = letters[source.encode()]
        headers: Any = headers_of(letter)
        assert (headers[0], dict(headers)["lancewal.kind"]) == (OLD_KEY, one.kind.encode())
        assert (letter.key(), letter.value()) == (one.key, one.value)
        world.feed.send_raw(one.corrected, letter.key(), headers, record=Record("upsert", one.row))
    world.wait_caught_up()
    world.check_strong()
    world.verify()
    write(world, 200)
    world.wait_caught_up()
    ingest.stop()
    world.merge_all()
    world.check_all_in(world.check_merged())
    report = world.verify()
    assert report.records > 60
