"""Every byte that a producer controls, in batches built by hand: no process ends, and what is no row is a dead letter."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from lancewal_demo.stack import KafkaBroker
from tests.support.record_batches import CONTROL, GZIP, NOW_MS, TRANSACTIONAL, RawRecord, batch_of, send_batch
from tests.whole_path.feed import Record
from tests.whole_path.test_bad_records import headers_of, read_letters
from tests.whole_path.world import World, make_world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

GOOD = {"customer": "customer-1", "id": 1, "status": "odd"}
_VALUE = json.dumps(GOOD).encode()
NO_UTF8 = (b"\xff\xfe", b"\x80", b"caf\xe9", b"\xc0\x80", b"\xed\xa0\x80", b"lancewal.op\xff", b"\xff" * 5_000)
"""Names of headers that are not UTF-8."""
ODD_NAMES = (b"", b"\x00", b"trace\x00id", b"\xef\xbb\xbf", "\U0001f600".encode(), b"\r\n", b"x" * 30_000)
ODD_TIMES = (0, 1, -1, -(2**62), NOW_MS + 400 * 365 * 86_400_000, 253_402_300_800_000, 2**62, 2**63 - 1)


def test_no_batch_ends_a_process(kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = make_world(
        kafka, topic_name, tmp_path, seed, topic_config={"message.timestamp.after.max.ms": str(2**63 - 1)}
    )
    world.feed.produce(50)
    partition, _ = world.feed.send_raw(_VALUE, world.feed.kafka_key(GOOD), record=Record("upsert", GOOD))
    sender = _Sender(world, kafka, topic_name, partition)
    ingest = world.lancewal.start("ingest", "run")
    for name in NO_UTF8:
        # Beside honest records, and also where the header that names the operation can be read.
        sender.send(
            [sender.row(1), sender.bad(((name, b"x"),)), sender.bad(((b"a", b"b"), (name, None))), sender.row(2)]
        )
        sender.send([sender.bad(((b"lancewal.op", b"delete"), (name, b"x"))), sender.row(3)])
    for name in ODD_NAMES:
        sender.send([sender.row(4, headers=((name, b"\xff"), (name, None)))])
    for at_ms in ODD_TIMES:
        sender.send([sender.row(5, timestamp_ms=at_ms)])
    sender.send([sender.row(6, attributes=0x7F)])
    sender.send([sender.row(7)], sequence=7)  # of a producer that nobody knows
    sender.noise(random.Random(f"batches {seed}"))
    # No broker takes these, so no consumer meets them.
    odd = [RawRecord(b"k", b"v", ((b"h", b"x"),), header_count=count) for count in (-1, 0, 2, 2**31 - 1)]
    for batch in [batch_of([one], packed) for one in odd for packed in (0, GZIP)]:
        sender.refused(batch)
    whole = [RawRecord(b"k", b"v")]
    for batch in (batch_of(whole, CONTROL), batch_of(whole, CONTROL | TRANSACTIONAL), batch_of(whole, TRANSACTIONAL),
                  batch_of(whole, offsets=1_000_000), batch_of(whole, 7)):  # fmt: skip
        sender.refused(batch)
    world.feed.produce(50)
    world.wait_caught_up()
    world.check_strong()
    assert ingest.running
    ingest.stop()
    world.merge_all()
    world.check_all_in(world.check_merged())
    world.verify()
    assert "Traceback" not in ingest.log

    letters = read_letters(world, f"{topic_name}.dead-letters", sender.letters)
    for letter in letters:
        told = dict(headers_of(letter))
        if told["lancewal.kind"] != b"unreadable_header":
            continue
        assert (letter.key(), letter.value()) == (world.feed.kafka_key(GOOD), _VALUE)
        # It lacks its record's headers: nobody can produce it again as if it were the record.
        assert told["lancewal.headers.bytes"] == b"unknown"
        assert not {"a", "lancewal.op"} & told.keys()


class _Sender:
    """Sends batches into one partition, and notes what each record must become."""

    def __init__(self, world: World, kafka: KafkaBroker, topic: str, partition: int) -> None:
        self.letters: set[str] = set()
        self._world, self._kafka, self._topic, self._partition = world, kafka, topic, partition

    def row(
        self,
        number: int,
        headers: tuple[tuple[bytes, bytes | None], ...] = (),
        timestamp_ms: int = NOW_MS,
        attributes: int = 0,
    ) -> tuple[RawRecord, Record | None]:
        cells = {**GOOD, "id": number}
        raw = RawRecord(self._world.feed.kafka_key(GOOD), json.dumps(cells).encode(), headers, timestamp_ms, attributes)
        return raw, Record("upsert", cells)

    def bad(self, headers: tuple[tuple[bytes, bytes | None], ...]) -> tuple[RawRecord, Record | None]:
        return RawRecord(self._world.feed.kafka_key(GOOD), _VALUE, headers), None

    def send(self, records: list[tuple[RawRecord, Record | None]], attributes: int = 0, sequence: int = -1) -> None:
        first = self._world.feed.history.ends.get(self._partition, 0)
        batch = batch_of([raw for raw, _ in records], attributes, sequence=sequence)
        code, base = send_batch(self._kafka.bootstrap_servers, self._topic, self._partition, batch)
        assert code == 0
        assert base >= first
        for at, (_, means) in enumerate(records):
            self._world.feed.history.add(self._partition, base + at, means)
            if means is None:
                self.letters.add(f"{self._topic}-{self._partition}-{base + at}")

    def refused(self, batch: bytes) -> None:
        code, _ = send_batch(self._kafka.bootstrap_servers, self._topic, self._partition, batch)
        assert code != 0

    def noise(self, rng: random.Random) -> None:
        """Random headers and values: no row where either cannot be read."""
        for packed in (0, GZIP):
            records = []
            for number in range(60):
                name, text = rng.randbytes(rng.randrange(1, 20)), rng.randbytes(rng.randrange(50))
                read = name.split(b"\x00")[0]  # as librdkafka cuts it
                records.append(self.row(number, ((name, text),)) if _is_utf8(read) else self.bad(((name, text),)))
                key, value = self._world.feed.kafka_key(GOOD), b"\xff" + rng.randbytes(rng.randrange(3_000))
                records.append((RawRecord(key, value), None))
            self.send(records, packed)


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
