"""Records that are no rows, from Kafka to the dead letters, and what becomes of the records around them."""

from __future__ import annotations

import json
import random
import signal
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from lancewal_core.process.clock import utc_text
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.ports import free_ports
from lancewal_ingest.decode.operations import CUT_HEADERS, LETTER_HEADERS
from lancewal_ingest.decode.outcomes import KINDS
from tests.support.whole_path import Service, until
from tests.whole_path.feed import PARTITIONS, Record
from tests.whole_path.test_lost_replies import metric
from tests.whole_path.world import World, make_world, positions

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

SECRET = "hunter2"
BYTES_MAX = 4096
GOOD = {"customer": "customer-1", "id": 1, "status": SECRET}
TRACE = ("trace", b"mine")

Headers = list[tuple[str, str | bytes | None]]


def _json(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


BAD: dict[str, tuple[bytes | None, Headers]] = {
    "too_large": (_json(status="x" * BYTES_MAX), [TRACE]),
    "cut_letter": (None, [TRACE, ("lancewal.source", b"t-0-1"), *((name, b"9") for name in CUT_HEADERS)]),
    "unknown_header": (_json(), [("lancewal.opp", b"delete"), TRACE]),
    "unknown_op": (_json(), [TRACE, ("lancewal.op", b"merge")]),
    "patch_not_allowed": (_json(), [("lancewal.op", b"patch"), TRACE]),
    "null_value": (None, [TRACE]),  # the Kafka key is only a part of the primary key
    "too_deep": (_json(tags=0).replace(b"0", b"[" * 70 + b"]" * 70), [TRACE]),
    "wrong_format": (b"\x00\x00\x00\x00\x07hunter2", [TRACE]),
    "not_json": (b'{"customer": "hunter2", ', [TRACE]),
    "duplicate_member": (_json()[:-1] + b', "id": 2}', [TRACE, ("trace", None)]),
    "not_an_object": (b'["hunter2"]', [TRACE]),
    "unknown_column": (_json(hunter2=1), [TRACE]),
    "missing_key": (_json(id=None), [TRACE]),
    "type": (_json(count="hunter2"), [TRACE]),
    "range": (_json(count=2**63), [TRACE]),
}


def test_every_kind_becomes_a_dead_letter(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    """The second of two processes goes on where the first died between a dead letter and its segment."""
    # No client sends the first (test_hostile_batches.py).
    elsewhere = {"unreadable_header"}
    # Keys that are compared (test_keys_in_any_text.py, test_keys_of_a_registry.py).
    elsewhere |= {"key_form", "key_differs", "key_form_changed"}
    # Values that name a schema (test_registry.py, append/test_other_records.py).
    elsewhere |= {"unknown_schema", "unusable_schema", "patch_fields", "malformed", "other_record"}
    # Events of a connector (ingest/envelopes).
    elsewhere |= {"envelope", "truncate", "unavailable_value"}
    assert BAD.keys() == KINDS.keys() - elsewhere
    rng = random.Random(f"bad {seed}")
    world = make_world(
        kafka, topic_name, tmp_path, seed, table={"patches": False, "record_bytes_max": BYTES_MAX, "grace_s": 600}
    )
    sent: dict[str, tuple[str, bytes | None, Headers]] = {}
    for kind in rng.sample([*BAD, *BAD], 2 * len(BAD)):
        value, headers = BAD[kind]
        partition, offset = world.feed.send_raw(value, world.feed.kafka_key(GOOD), headers)
        sent[f"{topic_name}-{partition}-{offset}"] = (kind, value, headers)
        world.feed.produce(rng.randrange(12))
    first = world.lancewal.start("ingest", "run", failpoint="dlq.produce:after=kill")
    until(lambda: not first.running)
    assert first.exit_code == -signal.SIGKILL
    second = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    world.check_strong()
    second.stop()
    world.merge_all()
    world.check_all_in(world.check_merged())
    world.verify()

    letters = read_letters(world, f"{topic_name}.dead-letters", set(sent))
    # At least once: what the first process sent, the second has sent again, and the header says that it is the same.
    assert len(letters) > len(sent)
    for letter in letters:
        found = headers_of(letter)
        source = _text(dict(found)["lancewal.source"])
        kind, value, own = sent[source]
        if kind == "too_large":  # without what was in it
            assert dict(found)["lancewal.value.bytes"] == str(len(value or b"")).encode()
            value, own = None, []
        own = [(f"original.{name}" if name in LETTER_HEADERS else name, text) for name, text in own]
        assert (letter.key(), letter.value()) == (world.feed.kafka_key(GOOD), value)
        assert found[: len(own)] == own
        told = {name.removeprefix("__connect.errors."): _text(text) for name, text in found[len(own) :]}
        assert f"{told['topic']}-{told['partition']}-{told['offset']}" == source
        assert told["class.name"] == told["lancewal.kind"] == kind
        assert told["exception.class.name"] == "lancewal.BadRecord"
        assert told["stage"] == "VALUE_CONVERTER"
        assert told["exception.message"]
        found_name = f". Found: '{SECRET}'" if kind == "unknown_column" else ""
        assert told["exception.message"].endswith(found_name)
        assert SECRET not in str(told).replace(found_name, "", 1)
    check_listed(world, letters)
    # Neither the services' logs nor anything else that they said holds a value.
    for service in (first, second):
        assert SECRET not in service.log
    assert sum(line["records"] for line in second.logged("dead_letters_written")) == len(sent)


def check_listed(world: World, letters: list[Message]) -> None:
    """The command counts what is there."""
    told = json.loads(world.lancewal.succeed("dead-letter", "list", "-o", "json"))
    kinds = Counter(_text(dict(headers_of(letter))["lancewal.kind"]) for letter in letters)
    listed: Counter[str] = Counter()
    for group in told["groups"]:
        listed[group["kind"]] += group["letters"]
    assert (listed, told["letters"]) == (kinds, len(letters))
    assert (told["elsewhere"], told["foreign"], told["unread"]) == (0, 0, [])
    columns = {group["kind"]: group["column"] for group in told["groups"]}
    assert (columns["unknown_column"], columns["type"], columns["not_json"]) == (SECRET, "count", None)
    times = {letter.timestamp()[1] for letter in letters}
    assert min(group["first"] for group in told["groups"]) == utc_text(min(times))
    assert max(group["last"] for group in told["groups"]) == utc_text(max(times))
    assert world.lancewal.succeed("dead-letter", "list", "--until", "1d").startswith(
        f"{told['topic']}: 0 letters in 0 groups"
    )


def test_a_misrouted_record_stops_its_partition_alone(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    (port,) = free_ports(1)
    world = make_world(kafka, topic_name, tmp_path, seed, http={"ingest_port": port, "flusher_port": 0})
    world.feed.produce(200)
    right, _ = world.feed.send_raw(_json(), world.feed.kafka_key(GOOD), record=Record("upsert", GOOD))
    wrong = (right + 1) % PARTITIONS
    _, offset = world.feed.send_raw(_json(), world.feed.kafka_key(GOOD), partition=wrong)
    world.feed.produce(200)
    expected = {**world.feed.history.ends, wrong: offset}
    for _ in range(2):  # a restart changes nothing: it stops at the same record
        ingest = world.lancewal.start("ingest", "run")
        check_stopped(world, ingest, port, wrong, right, offset)
        world.feed.produce(100)
        expected = {**world.feed.history.ends, wrong: offset}
        until(_cut_is(world, expected), lambda: positions(world.check_strong()))
        world.check_strong()
        ingest.stop()
    answer = world.lancewal.run("merge")
    assert answer.code == 0, answer.err
    assert positions(world.check_merged()) == expected


def check_stopped(world: World, ingest: Service, port: int, wrong: int, right: int, offset: int) -> None:
    until(lambda: len(ingest.logged("partition_stopped")) == 1, lambda: ingest.tail)
    (line,) = ingest.logged("partition_stopped")
    assert (line["kind"], line["partition"], line["offset"]) == ("misrouted", wrong, offset)
    assert f"partition {wrong} offset {offset}" in line["error"]
    assert f"belongs to partition {right} of {PARTITIONS}" in line["error"]
    assert SECRET not in ingest.log
    status, text = answer(port, "/readyz")
    assert status == 503
    assert text.startswith(f"misrouted: partition {wrong} stopped: topic ")
    assert " offset " in text
    assert answer(port, "/livez") == (200, "ok\n")
    labels = {"partition": str(wrong), "kind": "misrouted"}
    until(lambda: metric(port, "lancewal_ingest_partition_stopped", **labels) == 1)
    assert metric(port, "lancewal_ingest_partition_stopped") == 1


def answer(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def read_letters(world: World, topic: str, sources: set[str]) -> list[Message]:
    """All dead letters, once every one of ``sources`` is among them."""
    consumer = Consumer(
        {"bootstrap.servers": world.servers, "group.id": f"{topic}-check", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []

    def complete() -> bool:
        found.extend(consumer.consume(1000, 0.5))
        return sources <= {_text(dict(headers_of(letter))["lancewal.source"]) for letter in found}

    until(complete, lambda: f"{len(found)} letters of {len(sources)} sources")
    found.extend(consumer.consume(1000, 0.5))
    consumer.close()
    return found


def headers_of(message: Message) -> list[tuple[str, object]]:
    headers: Any = message.headers()  # the annotation there allows more than ever comes
    return list(headers or [])


def _cut_is(world: World, expected: dict[int, int]) -> Callable[[], bool]:
    return lambda: positions(world.check_strong()) == expected


def _text(value: object) -> str:
    assert isinstance(value, bytes)
    return value.decode()
