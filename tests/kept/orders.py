"""Orders on real services: what is produced, and what a copy and sums must then be, by dicts that know nothing of lancewal.

Among the records are many that change nothing in the end: a row is deleted and comes again as it was, or is set to what it was
before.  A consumer that reads such a stretch twice, with other ends, must not be misled by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lancewal_demo.stack import KafkaBroker
from lancewal_reader.point.receipt import Receipt
from tests.whole_path.feed import Feed, Operation, Record
from tests.whole_path.world import World, make_world, positions

COLUMNS = {"id": "int64", "status": "string", "cents": "int64"}
STATUSES = ("open", "paid", "sent", None)
_MOTIFS: tuple[tuple[Operation, ...], ...] = (
    ("upsert",),
    ("upsert",),
    ("patch",),
    ("delete",),
    ("upsert", "delete"),
    ("delete", "patch"),
    ("upsert", "patch", "delete", "upsert"),
)

OrderRow = Mapping[str, Any]
Sums = dict[str | None, tuple[int, int]]
"""By status: orders, and cents of them all."""


class Orders(Feed):
    """Random operations on about 60 orders, and now and then on a new one."""

    def __init__(self, servers: str, topic: str, seed: int) -> None:
        super().__init__(servers, topic, seed, ("id",))
        self._now: dict[int, OrderRow] = {}
        self._newest = 1000

    def produce(self, count: int) -> int:
        """At least so many records."""
        runs: list[list[Record]] = []
        busy: set[int] = set()
        while sum(map(len, runs)) < count:
            id = self._id(busy)
            busy.add(id)
            runs.append(self._run(id))
        return self.send(self._interleaved(runs))

    def fold(self, receipt: Receipt) -> dict[int, OrderRow]:
        """The orders of the records that a receipt covers."""
        cut = positions(receipt)
        rows: dict[int, OrderRow] = {}
        for partition, offsets in self.history.records.items():
            for offset, record in sorted(offsets.items()):
                if offset < cut.get(partition, 0) and record is not None:
                    take(rows, record)
        return rows

    def _id(self, busy: set[int]) -> int:
        known = [id for id in range(60) if id not in busy]
        if not known or self._rng.random() < 0.1:
            self._newest += 1
            return self._newest
        return self._rng.choice(known)

    def _run(self, id: int) -> list[Record]:
        row = self._now.get(id)
        if row is not None and self._rng.random() < 0.3:
            # As it was before, behind something else.
            operation: Operation = self._rng.choice(["delete", "patch"])
            records = [self._record(operation, ("", id)), Record("upsert", row)]
        else:
            records = [self._record(operation, ("", id)) for operation in self._rng.choice(_MOTIFS)]
        for record in records:
            take(self._now, record)
        return records

    def _record(self, operation: Operation, key: tuple[str, int]) -> Record:
        values = {"status": self._rng.choice(STATUSES), "cents": self._rng.randrange(-1000, 100_000)}
        if operation == "delete":
            values = {}
        elif operation == "patch":
            values.pop(self._rng.choice(["status", "cents"]))
        return Record(operation, {"id": key[1], **values})


def take(rows: dict[int, OrderRow], record: Record) -> None:
    """Apply one record."""
    id = record.columns["id"]
    match record.operation:
        case "upsert":
            rows[id] = {**dict.fromkeys(COLUMNS), **record.columns}
        case "patch":
            rows[id] = {**rows.get(id, dict.fromkeys(COLUMNS)), **record.columns}
        case "delete":
            rows.pop(id, None)


def sums_of(rows: Mapping[int, OrderRow]) -> Sums:
    """The sums of these orders."""
    sums: Sums = {}
    for row in rows.values():
        count, cents = sums.get(row["status"], (0, 0))
        sums[row["status"]] = count + 1, cents + (row["cents"] or 0)
    return sums


def reached(receipt: Receipt, orders: Orders) -> bool:
    """Whether a receipt covers everything that was produced."""
    cut = positions(receipt)
    return all(cut.get(partition, 0) >= end for partition, end in orders.history.ends.items())


def make_orders(kafka: KafkaBroker, topic: str, folder: Path, seed: int) -> tuple[World, Orders]:
    """The table, its settings and its feed."""
    table = {"columns": COLUMNS, "primary_key": ["id"], "history_window_s": 3600}
    world = make_world(kafka, topic, folder, seed, region_key=("id",), in_process=True, table=table)
    orders = Orders(world.servers, topic, seed)
    world.feed = orders
    return world, orders
