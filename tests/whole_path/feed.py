"""What is produced, and what the table must then be: random operations, delivery reports, a fold in plain Python.

The fold knows nothing of lancewal: per partition, in the order of the offsets that the broker has acknowledged, an upsert
replaces the row, a delete removes it, a patch sets the columns it has.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from confluent_kafka import Message, Producer

from tests.support.whole_path import DEADLINE_S

COLUMNS = {
    "customer": "string",
    "id": "int64",
    "status": "string",
    "amount": "float64",
    "count": "int64",
    "tags": "list<string>",
}
PRIMARY_KEY = ("customer", "id")
VALUES = tuple(name for name in COLUMNS if name not in PRIMARY_KEY)
PARTITIONS = 4

Key = tuple[str, int]
Row = Mapping[str, Any]
Operation = Literal["upsert", "patch", "delete"]

_MOTIFS: tuple[tuple[Operation, ...], ...] = (
    ("upsert",),
    ("upsert",),
    ("upsert", "patch"),
    ("upsert", "delete"),
    ("patch",),
    ("patch", "patch"),
    ("delete",),
    ("delete", "patch"),
    ("delete", "patch", "patch"),
    ("patch", "delete", "upsert"),
    ("delete", "delete", "upsert", "patch"),
)


@dataclass(frozen=True, slots=True)
class Record:
    """One row operation; ``columns`` are those that stand in the record, the key's included."""

    operation: Operation
    columns: Row

    @property
    def key(self) -> Key:
        return self.columns["customer"], self.columns["id"]


@dataclass(slots=True)
class History:
    """Per partition and offset what the broker has acknowledged; None is a record that is no row."""

    records: dict[int, dict[int, Record | None]] = field(default_factory=dict)

    def add(self, partition: int, offset: int, record: Record | None) -> None:
        offsets = self.records.setdefault(partition, {})
        assert offset not in offsets, f"two delivery reports for partition {partition} offset {offset}"
        offsets[offset] = record

    @property
    def ends(self) -> dict[int, int]:
        """Position behind the last record of each partition."""
        return {partition: max(offsets) + 1 for partition, offsets in self.records.items()}

    def fold(self, cut: Mapping[int, int], begin: Mapping[int, int] | None = None) -> dict[Key, Row]:
        """The table that the records from ``begin`` (None: the first) and below ``cut`` make; a partition that ``cut`` does
        not name is left out."""
        first = begin or {}
        table: dict[Key, Row] = {}
        for partition, offsets in self.records.items():
            for offset in sorted(offsets):
                record = offsets[offset]
                if first.get(partition, 0) <= offset < cut.get(partition, 0) and record is not None:
                    apply(table, record)
        return table

    def of(self, key: Key) -> list[str]:
        """All that happened to a key, for people."""
        return [
            f"{partition}@{offset}: {record.operation} {dict(record.columns)}"
            for partition, offsets in sorted(self.records.items())
            for offset, record in sorted(offsets.items())
            if record is not None and record.key == key
        ]


def apply(table: dict[Key, Row], record: Record) -> None:
    match record.operation:
        case "upsert":
            table[record.key] = {name: record.columns.get(name) for name in COLUMNS}
        case "patch":
            base = table.get(record.key, dict.fromkeys(COLUMNS))
            table[record.key] = {**base, **record.columns}
        case "delete":
            table.pop(record.key, None)


class Feed:
    """Produces random operations, repeatably by ``seed``, and keeps the history."""

    def __init__(self, servers: str, topic: str, seed: int, region_key: Sequence[str], *, patches: bool = True) -> None:
        self.history = History()
        self.topic = topic
        self._rng = random.Random(f"feed {seed}")
        self._region_key = tuple(region_key)
        self._motifs = [m for m in _MOTIFS if patches or "patch" not in m]
        self._fresh = 0
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 1,
                "log_level": 2,
            }
        )

    def produce(self, count: int) -> int:
        """About ``count`` records, several to the same key, and their values' bytes, once all are acknowledged."""
        runs = []
        total = 0
        while total < count:
            key = self._key()
            runs.append([self._record(operation, key) for operation in self._rng.choice(self._motifs)])
            total += len(runs[-1])
        return self.send(self._interleaved(runs))

    def produce_everywhere(self) -> None:
        """At least one record in each partition."""
        before = dict(self.history.ends)
        while any(self.history.ends.get(p, 0) == before.get(p, 0) for p in range(PARTITIONS)):
            self.produce(20)

    def send(self, records: Iterable[Record]) -> int:
        """These records, in this order; the bytes of their values."""
        nbytes = 0
        for record in records:
            key, value, headers = self._encoded(record)
            nbytes += len(value or b"")
            self._producer.produce(self.topic, value, key, headers=headers, on_delivery=self._note(record))
        self._flush()
        return nbytes

    def send_raw(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, str | bytes | None]] | None = None,
        partition: int = -1,
        record: Record | None = None,
    ) -> tuple[int, int]:
        """One record as it is; partition and offset.  ``record`` is what it means, None for one that is no row."""
        placed: list[tuple[int, int]] = []
        note = self._note(record, placed)
        if partition < 0:
            self._producer.produce(self.topic, value, key, headers=headers, on_delivery=note)
        else:
            self._producer.produce(self.topic, value, key, partition=partition, headers=headers, on_delivery=note)
        self._flush()
        return placed[0]

    def kafka_key(self, row: Row) -> bytes:
        """As the reference page tells producers, with stock Python; without a region key as another system might."""
        if not self._region_key:
            return json.dumps({"id": row["id"], "customer": row["customer"]}).encode()
        if len(self._region_key) == 1:
            return str(row[self._region_key[0]]).encode()
        items = [row[name] for name in self._region_key]
        return json.dumps(items, ensure_ascii=False, separators=(",", ":")).encode()

    def _key(self) -> Key:
        rng = self._rng
        if rng.random() < 0.15:  # never seen before: a patch of it finds nothing
            self._fresh += 1
            return f"kundin-{rng.randrange(40)}-ü", 1000 + self._fresh
        return f"customer-{min(rng.randrange(40), rng.randrange(40))}", rng.randrange(6)

    def _record(self, operation: Operation, key: Key) -> Record:
        rng = self._rng
        names = [name for name in VALUES if rng.random() < 0.6]
        if operation == "delete" and rng.random() < 0.7:
            names = []
        columns = {name: None if rng.random() < 0.2 else self._value(name) for name in names}
        return Record(operation, {"customer": key[0], "id": key[1], **columns})

    def _value(self, name: str) -> object:
        rng = self._rng
        match name:
            case "status":
                return rng.choice(["open", "geschlößen", "", "日本", 'a "b"\n'])
            case "amount":
                return rng.randrange(-(2**40), 2**40) / 4
            case "count":
                return rng.randrange(-(2**63), 2**63)
            case _:
                return [rng.choice(["x", "y", ""]) for _ in range(rng.randrange(4))]

    def _interleaved(self, runs: list[list[Record]]) -> list[Record]:
        """All records, those of a run in their order, the runs mixed up."""
        mixed = []
        while runs:
            at = self._rng.randrange(min(3, len(runs)))
            mixed.append(runs[at].pop(0))
            if not runs[at]:
                del runs[at]
        return mixed

    def _encoded(self, record: Record) -> tuple[bytes, bytes | None, list[tuple[str, str | bytes | None]] | None]:
        rng = self._rng
        key = self.kafka_key(record.columns)
        whole_key = set(self._region_key) == set(PRIMARY_KEY)
        if record.operation == "delete" and whole_key and len(record.columns) == 2 and rng.random() < 0.5:
            return key, None, None  # a tombstone
        headers: list[tuple[str, str | bytes | None]] | None = [("lancewal.op", record.operation.encode())]
        if record.operation == "upsert" and rng.random() < 0.8:
            headers = None if rng.random() < 0.7 else [("trace", b"abc")]
        return key, json.dumps(record.columns, ensure_ascii=rng.random() < 0.5).encode(), headers

    def _note(
        self, record: Record | None, placed: list[tuple[int, int]] | None = None
    ) -> Callable[[Any, Message], None]:
        def delivered(error: Any, message: Message) -> None:
            assert error is None, error
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.history.add(partition, offset, record)
            if placed is not None:
                placed.append((partition, offset))

        return delivered

    def _flush(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0
