"""Records from a hostile hand: what each becomes is known when it is made, so that an oracle can tell what must be read.

Of every kind in ``ROWS`` the records are valid rows; of ``LETTERS`` none is one, and each must become a dead letter; of
``STOPS`` each stops its partition by name until a person leads past it.  Rows repeat a few keys: what is large is the record
on its way, never the table.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import Message, Producer

from lancewal_core.rows.murmur2 import partition_of
from tests.support.record_batches import RawRecord, batch_of, send_batch
from tests.support.whole_path import DEADLINE_S, until
from tests.whole_path.feed import COLUMNS, PARTITIONS, History, Operation, Record

WIDTH = 1536
WIDE_COLUMNS: Mapping[str, str] = {
    **COLUMNS,
    "trip": "int64",
    "v": f"fixed_size_list<float32>[{WIDTH}]",
    "price": "decimal128(38, 10)",
}
"""Of a table on which small records may become large rows."""
TOPIC_CONFIG = {"max.message.bytes": "4000000"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LARGE = 900_000
"""Just below ``record_bytes_max``."""
_PAD = "x" * LARGE
"""One object, however many records of the oracle hold it."""

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Hostile:
    """One record to be sent; ``means`` is None where it is no row."""

    value: bytes | None
    key: bytes | None
    headers: Headers | None = None
    partition: int = -1
    means: Record | None = None
    timestamp_ms: int = 0
    """0: when it is sent."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one kind, and the codec that they are packed with."""

    codec: str
    records: Iterator[Hostile]


@dataclass(slots=True)
class Sender:
    """Sends hostile records and notes in ``history`` what the broker has acknowledged."""

    servers: str
    topic: str
    history: History = field(repr=False)
    """Holds values of megabytes: a failing test would show them."""
    not_rows: list[tuple[int, int]] = field(default_factory=list)
    """Partition and offset of each acknowledged record that is no row."""
    refused: int = 0
    """Records that the broker did not take."""
    _producers: dict[str, Producer] = field(default_factory=dict)

    def send(self, batch: Batch) -> int:
        """How many of them the broker has taken."""
        producer = self._producer(batch.codec)
        before = self.refused
        count = 0
        for record in batch.records:
            count += 1
            while True:
                try:
                    self._produce(producer, record)
                    break
                except BufferError:
                    producer.poll(0.1)
        until(lambda: producer.flush(1.0) == 0, lambda: f"{len(producer)} records are not acknowledged", DEADLINE_S)
        return count - (self.refused - before)

    def send_by_hand(self, partition: int, records: Sequence[tuple[RawRecord, Record | None]]) -> int:
        """One batch of records that no client sends, with what each means; how many there are."""
        code, base = send_batch(self.servers, self.topic, partition, batch_of([raw for raw, _ in records]))
        assert code == 0, f"the broker refused the batch with {code}"
        for offset, (_, means) in enumerate(records, base):
            self.history.add(partition, offset, means)
            if means is None:
                self.not_rows.append((partition, offset))
        return len(records)

    def _produce(self, producer: Producer, record: Hostile) -> None:
        producer.produce(
            self.topic,
            record.value,
            record.key,
            partition=record.partition,
            headers=record.headers,
            timestamp=record.timestamp_ms,
            on_delivery=self._noted(record),
        )

    def _noted(self, record: Hostile) -> Callable[[Any, Message], None]:
        means = record.means  # the value itself is not kept

        def delivered(error: Any, message: Message) -> None:
            if error is not None:
                self.refused += 1
                return
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.history.add(partition, offset, means)
            if means is None:
                self.not_rows.append((partition, offset))

        return delivered

    def _producer(self, codec: str) -> Producer:
        if codec not in self._producers:
            self._producers[codec] = Producer(
                {"bootstrap.servers": self.servers, "partitioner": "murmur2_random", "compression.type": codec,
                 "linger.ms": 20, "batch.size": 1_000_000, "message.max.bytes": 400_000_000, "log_level": 2,
                 "queue.buffering.max.kbytes": 256 << 10, "enable.idempotence": True}
            )  # fmt: skip
        return self._producers[codec]


def row(customer: str, number: int, operation: Operation = "upsert", **columns: object) -> Hostile:
    """A valid record.  What it holds beyond ``COLUMNS`` the oracle does not compare."""
    whole = {"customer": customer, "id": number, **columns}
    told = {name: value for name, value in whole.items() if name in COLUMNS}
    headers: Headers | None = None if operation == "upsert" else [("lancewal.op", operation.encode())]
    return Hostile(json.dumps(whole).encode(), customer.encode(), headers, means=Record(operation, told))


def no_row(value: bytes | None, headers: Headers | None = None, customer: str = "hostile-0") -> Hostile:
    return Hostile(value, customer.encode(), headers)


# -- rows ----------------------------------------------------------------------------------------------------------


def large_text(rng: random.Random, count: int) -> Iterator[Hostile]:
    """Records of 900 KB, of which a codec makes some hundred bytes each."""
    body = b'", "status": "' + _PAD.encode() + b'", "id": '
    for n in range(count):
        customer = f"hostile-{rng.randrange(8)}"
        value = b'{"customer": "' + customer.encode() + body + b"%d}" % (n % 3)
        means = Record("upsert", {"customer": customer, "id": n % 3, "status": _PAD})
        yield Hostile(value, customer.encode(), means=means)


def wide_patches(rng: random.Random, count: int) -> Iterator[Hostile]:
    """Thirty bytes each, which set one number of a row that is six kilobytes wide."""
    return (row(f"hostile-{rng.randrange(50)}", n % 20, "patch", trip=n) for n in range(count))


def vectors(rng: random.Random, count: int) -> Iterator[Hostile]:
    texts = [[round(rng.random(), 6) for _ in range(WIDTH)] for _ in range(4)]
    return (row(f"hostile-{rng.randrange(50)}", n % 20, v=texts[n % 4]) for n in range(count))


def long_keys(rng: random.Random, count: int) -> Iterator[Hostile]:
    """Primary keys of 200 KB, which differ in their last characters alone."""
    return (row("k" * 200_000 + str(rng.randrange(8)), n % 2, count=n) for n in range(count))


def many_headers(rng: random.Random, count: int) -> Iterator[Hostile]:
    for n in range(count):
        made = row(f"hostile-{rng.randrange(50)}", n % 20, count=n)
        yield Hostile(made.value, made.key, [(f"h{i}", b"x" * 40) for i in range(2_000)], means=made.means)


def of_1970(rng: random.Random, count: int) -> Iterator[Hostile]:
    """Rows whose times are older than what any topic retains."""
    for n in range(count):
        yield replace(row(f"hostile-{rng.randrange(50)}", n % 20, count=n), timestamp_ms=1_000 + n)


def list_of_lists(rng: random.Random, count: int) -> Iterator[Hostile]:
    """Many empty texts in one list: eight bytes each in the row."""
    tags = [""] * 20_000
    return (row(f"hostile-{rng.randrange(4)}", 0, tags=tags) for _ in range(count))


ROWS: Mapping[str, tuple[Callable[[random.Random, int], Iterator[Hostile]], int]] = {
    "records of 900 KB that pack well": (large_text, 500),
    "patches of wide rows": (wide_patches, 30_000),
    "rows with a vector": (vectors, 800),
    "keys of 200 KB": (long_keys, 100),
    "2,000 headers each": (many_headers, 500),
    "lists of empty texts": (list_of_lists, 300),
    "times of 1970": (of_1970, 2_000),
}
"""And how many of them at a time."""


# -- dead letters --------------------------------------------------------------------------------------------------


def _cell(column: str, text: bytes) -> bytes:
    return b'{"customer": "hostile-0", "id": 1, "' + column.encode() + b'": ' + text + b"}"


def not_utf8(rng: random.Random) -> Hostile:
    return no_row(_cell("status", b'"' + rng.randbytes(rng.randrange(1, 4000)).replace(b'"', b"") + b'\xff\xfe"'))


def noise(rng: random.Random) -> Hostile:
    return no_row(b"\xff" + rng.randbytes(rng.randrange(0, 50_000)))


def deep(rng: random.Random) -> Hostile:
    depth = rng.choice([70, 10_000, 400_000])
    bracket = rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    return no_row(_cell("tags", bracket[0] * min(depth, 150_000) + b"1" + bracket[1] * min(depth, 150_000)))


def huge_number(rng: random.Random) -> Hostile:
    column = rng.choice(["count", "id", "price"])
    return no_row(_cell(column, rng.choice([b"9" * rng.randrange(40, 900_000), b"1e999999999", b"-1" + b"0" * 5_000])))


def decimals(rng: random.Random) -> Hostile:
    """A string full of what looks like decimals of a scale that nothing has, where a list of texts should be."""
    return no_row(_cell("tags", b'"' + b",1e-39" * rng.randrange(1, 150_000) + b'"'))


def too_large(rng: random.Random) -> Hostile:
    return no_row(_cell("status", b'"' + b"y" * rng.randrange(1_000_000, 3_000_000) + b'"'))


def header_bomb(rng: random.Random) -> Hostile:
    return no_row(_cell("count", b"1"), [(f"h{n}", b"x" * 100) for n in range(rng.randrange(12_000, 20_000))])


def forged_headers(rng: random.Random) -> Hostile:
    forged: Headers = [
        ("lancewal.source", f"elsewhere-{rng.randrange(9)}-{rng.randrange(999)}".encode()),
        ("__connect.errors.topic", b"elsewhere"),
        ("__connect.errors.exception.message", b"\x1b]52;c;aGFybQ==\x07\r\n"),
    ]
    return no_row(b"[]", forged * rng.randrange(1, 20))


def many_members(rng: random.Random) -> Hostile:
    members = b",".join(b'"m%d":1' % n for n in range(rng.randrange(10, 60_000)))
    return no_row(b'{"customer": "hostile-0", "id": 1, ' + members + b"}")


def cut_short(rng: random.Random) -> Hostile:
    whole = json.dumps({"customer": "hostile-0", "id": 1, "status": "geschlößen", "tags": ["a", "b"]}).encode()
    return no_row(whole[: rng.randrange(1, len(whole) - 1)])


def unknown_operation(rng: random.Random) -> Hostile:
    operation = rng.choice([b"merge", b"", b"\xff\xfe", b"upsert" * 1_000, b"UPSERT", None])
    return no_row(_cell("count", b"1"), [("lancewal.op", operation)])


def unknown_header(rng: random.Random) -> Hostile:
    name = rng.choice(["lancewal.opp", "lancewal.OP", "LANCEWAL.op", "lancewal." + "x" * 5_000])
    headers: Headers = [("lancewal.op", b"delete"), (name, b"delete")]
    return no_row(_cell("count", b"1"), headers[rng.randrange(2) :])


def cut_letter(rng: random.Random) -> Hostile:
    """A dead letter without its record's value, or one about such a letter, produced as if it were the record."""
    before = rng.choice(["", "original."])
    headers: Headers = [("lancewal.kind", b"too_large"), ("lancewal.source", b"elsewhere-0-1")]
    headers += [(f"{before}lancewal.{part}.bytes", b"2000000") for part in ("key", "value", "headers")]
    return no_row(None, headers)


def surrogate(rng: random.Random) -> Hostile:
    return no_row(_cell("status", b'"\\ud800"'))


LETTERS: Mapping[str, Callable[[random.Random], Hostile]] = {
    "no UTF-8": not_utf8,
    "noise": noise,
    "deep JSON": deep,
    "huge numbers": huge_number,
    "a megabyte of decimals": decimals,
    "too large": too_large,
    "header bombs": header_bomb,
    "forged headers": forged_headers,
    "unknown members": many_members,
    "cut short": cut_short,
    "unknown operations": unknown_operation,
    "unknown headers": unknown_header,
    "cut letters": cut_letter,
    "half a surrogate": surrogate,
}


def names_not_utf8(rng: random.Random, partition: int) -> Iterator[tuple[RawRecord, Record | None]]:
    """Records with a header name that is not UTF-8, which only a batch built by hand has, between good rows."""
    customer = next(name for n in range(99) if partition_of((name := f"odd-{n}").encode(), PARTITIONS) == partition)
    now_ms = int(time.time() * 1000)
    for n in range(rng.randrange(5, 60)):
        made = row(customer, n % 20, count=n)
        yield RawRecord(made.key, made.value, timestamp_ms=now_ms), made.means
        header = (b"a" * rng.randrange(9) + b"\xff" * rng.randrange(1, 2_000), rng.choice([None, b"", b"x"]))
        headers = rng.choice([(header,), (header, (b"lancewal.op", b"delete")), ((b"lancewal.op", b"delete"), header)])
        yield RawRecord(made.key, made.value, headers, now_ms), None


# -- stops ---------------------------------------------------------------------------------------------------------


def misrouted(partition: int) -> Batch:
    """A good row in a partition that is not its own."""
    customer = next(c for c in (f"astray-{n}" for n in range(99)) if partition_of(c.encode(), PARTITIONS) != partition)
    made = row(customer, 1)
    return Batch("none", iter([Hostile(made.value, made.key, partition=partition)]))


def unpacks_beyond_what_is_received(partition: int) -> Batch:
    """One record of 150 MB in a few kilobytes."""
    return Batch("zstd", iter([Hostile(b"z" * 150_000_000, b"hostile-0", partition=partition)]))


STOPS: Mapping[str, tuple[Callable[[int], Batch], str]] = {
    "misrouted": (misrouted, "misrouted"),
    "a record of 150 MB in zstd": (unpacks_beyond_what_is_received, "records_unreadable"),
}
"""And the kind by which the partition stops."""
