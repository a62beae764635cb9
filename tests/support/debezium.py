"""Records as a Debezium connector has written them, and what tables must hold after them.

``tests/ingest/envelopes/samples`` has records of real connectors (Debezium 3.5, PostgreSQL 15 and MariaDB 10.11), one a line.
``rows_of`` folds them by a few lines of its own, and never calls a decoder of the product.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.rows.carry import fields_within
from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.fold import fold
from lancewal_core.table.contract import Column, Contract
from lancewal_ingest.append.prepare import Consumed, Preparer, Together
from lancewal_kafka.records import Records

SAMPLES = Path(__file__).parents[1] / "ingest" / "envelopes" / "samples"
PARTITIONS = 4
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """One record."""

    table: str
    partition: int
    offset: int
    step: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@cache
def samples(name: str, *tables: str) -> tuple[Sample, ...]:
    """The records of a file, of these tables."""
    found = map(json.loads, (SAMPLES / f"{name}.jsonl").read_text().splitlines())
    return tuple(
        Sample(
            one["table"], one["partition"], one["offset"], one["step"],
            None if one["key"] is None else one["key"].encode(), None if one["value"] is None else one["value"].encode(),
        )
        for one in found
        if one["table"] in tables
    )  # fmt: skip


def rows_of(records: Iterable[Sample], row_of: Callable[[Any], Row | None]) -> dict[str, Row]:
    """The rows after these records, by the text of their keys.  ``row_of``: the row in a value; None for a delete."""
    rows: dict[str, Row] = {}
    for record in records:
        key = (record.key or b"").decode()
        value = None if record.value is None else json.loads(record.value)
        row = None if value is None else row_of(value)
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
    return rows


def in_envelope(value: Any) -> Row | None:
    return value["after"] if value["op"] in ("c", "u", "r") else None


def unwrapped(value: Any) -> Row | None:
    return None if value.get("__deleted") == "true" else {n: v for n, v in value.items() if not n.startswith("__")}


def contract_of(columns: Mapping[str, str], key: Sequence[str] = ("id",), **terms: Any) -> Contract:
    """A table of values in Debezium's envelope, with keys as Kafka Connect writes them without schemas."""
    return Contract(
        table_uuid="u", topic="t", topic_id="i", partitions=PARTITIONS, start=(0,) * PARTITIONS,
        columns=tuple(Column(name=n, type=t, field_ids=_ids(t, 100 * i)) for i, (n, t) in enumerate(columns.items())),
        **{
            "primary_key": tuple(key), "region_key": tuple(key), "key_format": "json-compact", "envelope": "debezium",
            "on_bad_record": "stop", **terms,
        },
    )  # fmt: skip


def _ids(type_: str, first: int) -> tuple[int, ...]:
    def count(of: pa.DataType) -> int:
        return 1 + sum(count(field.type) for field in fields_within(of))

    return tuple(range(first, first + count(parse_type(type_))))


def consumed(records: Sequence[Sample]) -> list[Consumed]:
    """The records, by the partitions in which they lie."""
    found = []
    for partition in range(PARTITIONS):
        here = sorted((one for one in records if one.partition == partition), key=lambda one: one.offset)
        offsets = [one.offset for one in here]
        batch = Records(
            offsets, offsets, [o.key for o in here], [o.value for o in here], [list(o.headers) or None for o in here]
        )
        region = Region("t", TopicId("i"), partition)
        found.append(Consumed(region, Position(0), Position(max(offsets, default=0) + 1), batch))
    return found


def taken(contract: Contract, records: Sequence[Sample]) -> list[Together]:
    return Preparer(contract).prepare_all(consumed(records))


def table_after(contract: Contract, records: Sequence[Sample], keys: Sequence[str] | None = None) -> dict[str, Row]:
    """The rows that ingest makes of the records, by the text of their keys; nothing may be rejected."""
    found = taken(contract, records)
    assert [(one.outcome.letters, one.outcome.stop) for one in found] == [((), None)] * PARTITIONS
    entries = [one.outcome.entry for one in found]
    rows = fold([entry.rows for entry in entries if entry is not None], contract.rows).rows
    names = keys or contract.region_key
    found_rows = [{name: row[name] for name in contract.rows.table.names} for row in rows.to_pylist()]
    return {json.dumps({name: row[name] for name in names}, separators=(",", ":")): row for row in found_rows}
