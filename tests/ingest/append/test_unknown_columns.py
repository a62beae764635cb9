"""A field of a schema for which the table has no column stops its partition, and becomes no dead letter."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from lancewal_core.errors import ColumnUnknown
from lancewal_core.names.ids import Position, Region, SchemaKey, TopicId
from lancewal_core.settings.sections import OnUnknownColumn
from lancewal_core.table.contract import Column, Contract
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.append.prepare import Consumed, PrepareOutcome, Preparer, lenient
from lancewal_ingest.registry.asked import AskedSchemas
from lancewal_kafka.records import Records
from tests.support.fake_registry import FakeRegistry

FIELDS = [{"name": "id", "type": "long"}, {"name": "more", "type": ["null", "string"]}]
SCHEMAS = {n: {"type": "record", "name": "R", "fields": FIELDS[:n]} for n in (1, 2)}


def contract(on_unknown_column: OnUnknownColumn) -> Contract:
    return Contract(
        table_uuid="u", topic="t", topic_id="i", partitions=1, primary_key=("id",), region_key=(), start=(0,),
        key_format="bytes", format=2, value_format="avro", on_unknown_column=on_unknown_column,
        columns=(Column(name="id", type="int64", field_ids=(0,)),),
    )  # fmt: skip


def value(number: int, row: dict[str, object]) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(SCHEMAS[number]), row)
    return b"\0" + number.to_bytes(4) + data.getvalue()


def prepared(by: Contract) -> PrepareOutcome:
    """Of two rows, a bad record, one with a field that is no column, and a row."""
    registry = FakeRegistry()
    registry.has = {SchemaKey(f"id-{n}"): WriterSchema("avro", json.dumps(schema)) for n, schema in SCHEMAS.items()}
    good = [value(1, {"id": n}) for n in range(3)]
    values = [good[0], good[1], good[0] + b"!", value(2, {"id": 3, "more": "x"}), good[2]]
    records = Records(list(range(5)), [0] * 5, [b"k"] * 5, list(values), [None] * 5)
    consumed = Consumed(Region("t", TopicId("i"), 0), Position(0), Position(5), records)
    return Preparer(by, schemas=AskedSchemas(registry)).prepare(consumed)


def test_under_reject_the_partition_stops_without_a_letter() -> None:
    entry, letters, stop = prepared(contract("reject"))
    assert entry is not None
    assert (entry.next, [one.offset for one in letters]) == (3, [2])
    assert stop is not None
    assert isinstance(stop.error, ColumnUnknown)
    assert stop.error.where == {"topic": "t", "partition": 0, "offset": 3}
    assert "more" in str(stop.error)


def test_under_ignore_the_record_is_a_row() -> None:
    entry, _, stop = prepared(contract("ignore"))
    assert entry is not None
    assert (stop, entry.next, [one.offset for one in entry.rejected]) == (None, 5, [2])


@pytest.mark.parametrize("policy", ["reject", "add"])
def test_who_reads_again_lists_the_record(policy: OnUnknownColumn) -> None:
    entry, letters, stop = prepared(lenient(contract(policy)))
    assert entry is not None
    assert (stop, entry.next, [one.offset for one in letters]) == (None, 5, [2, 3])
