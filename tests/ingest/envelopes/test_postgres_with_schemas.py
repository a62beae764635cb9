"""Events with schemas, as a connector of PostgreSQL has written them: Avro with Confluent's frame, and JSON of Connect."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from unittest import mock

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.names.ids import SchemaKey
from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.settings.sections import ValueFormat
from lancewal_core.wal.writer_schemas import StoredSchema, WriterSchema, stored_schema
from lancewal_ingest.decode.framed.frames import key_of_id
from lancewal_ingest.decode.naming import Names, Naming
from lancewal_ingest.decode.outcomes import KINDS
from lancewal_ingest.envelopes import avro_opening
from lancewal_ingest.envelopes.envelope import EnvelopeRules
from lancewal_ingest.formats import value_decoder
from tests.ingest.decode.connect.test_debezium import ALL_TYPES
from tests.ingest.envelopes.test_types_in_json import AT, MARIADB
from tests.support.debezium import SAMPLES, samples
from tests.support.fuzzing import damaged, fuzz

POINT = Names({"x": None, "y": None, "wkb": None, "srid": None})
TABLES = {
    "accounts": {"id": "int32", "name": "string", "amount": "decimal128(12, 2)", "at": "string"},
    "accounts_full": {"id": "int32", "name": "string", "amount": "decimal128(12, 2)", "at": "string"},
    "lines": {"region": "string", "no": "int32", "item": "string", "qty": "int32"},
    "keychg": {"id": "int64", "v": "int32"},
    "nopk": {"a": "int32", "b": "string"},
}
KEYS = {"lines": ("region", "no"), "nopk": ("a",)}


class FromFile:
    """The schemas of the samples, and those that a test adds."""

    asked_first = False

    def __init__(self) -> None:
        texts: dict[str, Any] = json.loads((SAMPLES / "postgres_avro_schemas.json").read_text())
        self.versions = {key_of_id(int(number)): self._stored(schema) for number, schema in texts.items()}

    def _stored(self, schema: object) -> tuple[StoredSchema, ...]:
        return (stored_schema(WriterSchema("avro", json.dumps(schema)), "a"),)

    def add(self, number: int, schema: object) -> None:
        self.versions[key_of_id(number)] = self._stored(schema)

    def known(self, key: SchemaKey) -> tuple[StoredSchema, ...]:
        return self.versions.get(key, ())

    def read(self, key: SchemaKey, at_least: int = 1) -> tuple[StoredSchema, ...]:
        return self.known(key)


SCHEMAS = FromFile()
EVENTS = [json.loads(line) for line in (SAMPLES / "postgres_avro.jsonl").read_text().splitlines()]
for _one in EVENTS:
    _one["value"] = base64.b64decode(_one["value_base64"])


def rows_of(table: str) -> RowSchema:
    key = KEYS.get(table, ("id",))
    fields = [pa.field(name, parse_type(type_), nullable=name not in key) for name, type_ in TABLES[table].items()]
    return RowSchema(pa.schema(fields), key, key)


def became(
    values: list[bytes],
    rows: RowSchema,
    format_: ValueFormat = "avro",
    rules: EnvelopeRules | None = None,
    naming: Any = None,
) -> list[object]:
    """What became of each value: its row, and the word for anything else."""
    rules = rules or EnvelopeRules("debezium")
    decoder = value_decoder(format_, rows, naming or Naming(), SCHEMAS, envelope=rules)
    found = decoder.decode(values, np.zeros(len(values), np.uint8))
    texts: dict[int, object] = {one.place: one.kind for one in found.refused}
    texts |= {int(at): "delete" for at in found.deletes}
    texts |= {int(at): kind for kind, passed in found.passed_over.items() for at in passed}
    for part in found.parts:
        table = pa.table(list(part.columns), schema=rows.columns)
        texts |= dict(zip(part.indexes.tolist(), table.to_pylist(), strict=True))
        assert set(part.ops.to_pylist()) <= {int(Op.UPSERT), int(Op.PATCH)}
    assert sorted(texts) == list(range(len(values)))
    return [texts[at] for at in range(len(values))]


def expected(event: dict[str, Any], columns: dict[str, str]) -> object:
    """The row, as fastavro has read the event; or the word for what it is."""
    match event["op"]:
        case "d":
            return "delete"
        case "t":
            return "truncate"
        case "m":
            return "message"
    after = {name: event["after"].get(name) for name in columns}
    return {n: Decimal(v) if columns[n].startswith("decimal") and v is not None else v for n, v in after.items()}


@pytest.mark.parametrize("table", TABLES)
def test_the_rows_of_the_source_come_out_of_avro(table: str) -> None:
    events = [event for event in EVENTS if event["table"] == table]
    assert len(events) > 0
    values = [event["value"] for event in events]
    assert became(values, rows_of(table)) == [expected(event, TABLES[table]) for event in events]


def test_each_type_comes_out_of_avro_as_its_schema_says() -> None:
    """The names of Kafka Connect say the unit of a time, and that a text is a time or a uuid."""
    (event,) = [event for event in EVENTS if event["table"] == "all_types"]
    columns = pa.schema([(name, type_) for name, (type_, _) in ALL_TYPES.items()])
    rows = RowSchema(columns, ("tenant", "id"), ("tenant", "id"))
    present = {name: Names({"x": None, "y": None}, ignores=True) if name == "pt" else None for name in columns.names}
    present["num"] = Names({"scale": None, "value": None})
    (row,) = became([event["value"]], rows, naming=Naming(Names(present, ignores=True)))
    assert row == {name: cell for name, (_, cell) in ALL_TYPES.items()}


def test_tables_and_messages_in_one_topic() -> None:
    """Each schema has its own decoder.  A message has none for rows."""
    mixed = [event for event in EVENTS if event["table"] in ("lines", "message")]
    found = became([event["value"] for event in mixed], rows_of("lines"))
    assert found == [expected(event, TABLES["lines"]) for event in mixed]
    assert "message" in found
    assert "truncate" in found


def test_rows_of_a_snapshot_may_be_skipped() -> None:
    events = [event for event in EVENTS if event["table"] == "accounts"]
    found = became([event["value"] for event in events], rows_of("accounts"), rules=EnvelopeRules("debezium", True))
    assert [one == "snapshot_row" for one in found] == [event["op"] == "r" for event in events]


def test_what_is_unavailable_is_left_alone() -> None:
    (event,) = [event for event in EVENTS if event["table"] == "docs"]
    types = {"id": "int32", "title": "string", "body": "string", "blob": "binary", "tags": "list<string>", "meta": "string",
             "n": "int32"}  # fmt: skip
    fields = [pa.field(name, parse_type(type_), nullable=name != "id") for name, type_ in types.items()]
    rows = RowSchema(pa.schema(fields), ("id",), ("id",))
    decoder = value_decoder("avro", rows, Naming(), SCHEMAS, envelope=EnvelopeRules("debezium"))
    (part,) = decoder.decode([event["value"]], np.zeros(1, np.uint8)).parts
    assert part.ops.to_pylist() == [int(Op.PATCH)]
    assert part.present.to_pylist() == [bytes([0b1000011])]
    assert [column[0].as_py() for column in part.columns] == [1, "first", None, None, None, None, 2]


def test_unknown_fields_of_the_row_are_named_and_those_of_the_envelope_pass() -> None:
    rows = RowSchema(pa.schema([pa.field("id", pa.int32(), nullable=False)]), ("id",), ("id",))
    values = [event["value"] for event in EVENTS if event["table"] == "accounts" and event["op"] == "c"]
    decoder = value_decoder("avro", rows, Naming(), SCHEMAS, envelope=EnvelopeRules("debezium"))
    found = decoder.decode(values, np.zeros(len(values), np.uint8))
    assert {one.kind for one in found.refused} == {"unknown_column"}
    assert list(found.new_fields) == ["name", "amount", "at"]
    ignores = Naming(Names({"id": None}, ignores=True))
    assert all(isinstance(one, dict) for one in became(values, rows, naming=ignores))


ENVELOPE: dict[str, Any] = {
    "type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": [
            {"name": "id", "type": "long"}, {"name": "s", "type": ["null", "string"]}]}]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "db", "type": "string"}]}},
        {"name": "op", "type": "string"},
    ],
}  # fmt: skip
SMALL = RowSchema(pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())]), ("id",), ("id",))


def written(event: dict[str, Any], schema: Any = ENVELOPE, number: int = 900) -> bytes:
    SCHEMAS.add(number, schema)
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), event)
    return b"\0" + number.to_bytes(4) + data.getvalue()


def event(op: str, after: Any = None, before: Any = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"db": "x"}}


ROW = {"id": 7, "s": "x"}


def test_operations_and_what_they_need() -> None:
    sent = {
        written(event("c", ROW)): ROW,
        written(event("u", ROW, ROW)): ROW,
        written(event("d", None, ROW)): "delete",
        written(event("d", ROW)): "delete",
        written(event("t")): "truncate",
        written(event("m")): "message",
        written(event("c")): "envelope",
        written(event("x", ROW)): "envelope",
        written(event("", ROW)): "envelope",
        written(event("cc", ROW)): "envelope",
        written(event("c", ROW))[:-1]: "malformed",
        written(event("c", ROW)) + b"\0": "malformed",
    }
    assert became(list(sent), SMALL) == list(sent.values())
    assert became(list(sent) * 50, SMALL) == list(sent.values()) * 50


def test_a_null_of_a_list_is_clear_beside_the_old_row() -> None:
    value = {"type": "record", "name": "Value", "fields": [
        {"name": "id", "type": "long"}, {"name": "v", "type": ["null", {"type": "array", "items": "float"}]}]}  # fmt: skip
    before, after, *rest = ENVELOPE["fields"]
    schema = {**ENVELOPE, "fields": [{**before, "type": ["null", value]}, after, *rest]}
    fields = [pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32()))]
    rows = RowSchema(pa.schema(fields), ("id",), ("id",))
    row = {"id": 7, "v": None}
    sent = [written(event(*args), schema, 905) for args in (("u", row), ("u", row, row), ("c", row), ("r", row))]
    assert became(sent, rows) == ["unavailable_value", row, row, row]
    assert became(sent, rows, rules=EnvelopeRules("debezium", as_null=True)) == [row] * 4
    assert became(sent, rows, rules=EnvelopeRules("debezium", never=frozenset(["v"]))) == [row] * 4


def test_an_array_of_dates_may_be_unavailable() -> None:
    """The placeholder's bytes come as numbers of days."""
    day = {"type": "int", "connect.name": "io.debezium.time.Date"}
    days = ["null", {"type": "array", "items": ["null", day]}]
    fields = [{"name": "id", "type": "long"}, {"name": "c", "type": days}]
    value = {"type": "record", "name": "Value", "fields": fields}
    before, after, *rest = ENVELOPE["fields"]
    schema = {**ENVELOPE, "fields": [{**before, "type": ["null", value]}, after, *rest]}
    rows = RowSchema(pa.schema([pa.field("id", pa.int64()), ("c", pa.list_(pa.date32()))]), ("id",), ("id",))
    placeholder, shorter = [*b"__debezium_unavailable_value"], [*b"__debezium"]
    sent = [written(event(op, {"id": 7, "c": c}), schema, 907) for op in "cu" for c in (placeholder, shorter)]
    good = {"id": 7, "c": [date(1970, 1, 1) + timedelta(number) for number in shorter]}
    assert became(sent, rows) == ["unavailable_value", good, {"id": 7, "c": None}, good]


def test_other_schemas() -> None:
    times = {"type": "record", "name": "Heartbeat", "fields": [{"name": "ts_ms", "type": "long"}]}
    row = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}]}
    text = {**ENVELOPE, "fields": [*ENVELOPE["fields"][:3], {"name": "op", "type": "int"}]}
    end = {"type": "record", "name": "End", "fields": [
        {"name": "status", "type": "string"}, {"name": "id", "type": "string"},
        {"name": "event_count", "type": ["null", "long"]},
        {"name": "data_collections", "type": {"type": "array", "items": "string"}}, {"name": "ts_ms", "type": "long"},
    ]}  # fmt: skip
    ended = {"status": "END", "id": "1", "event_count": 1, "data_collections": ["a"], "ts_ms": 1}
    assert became([written({"ts_ms": 1}, times, 901), written(event("c", ROW))], SMALL) == ["heartbeat", ROW]
    assert became([written(ended, end, 904)], SMALL) == ["transaction"]
    assert became([written({"id": 1}, row, 902)], SMALL) == ["wrong_format"]
    assert became([written({**event("c", ROW), "op": 1}, text, 903)], SMALL) == ["envelope"]


@pytest.mark.parametrize(("number", "after"), [(908, "Value"), (909, ["Value"])])
def test_rows_that_are_not_beside_a_null_in_their_union(number: int, after: object) -> None:
    before, _, *rest = ENVELOPE["fields"]
    schema = {**ENVELOPE, "fields": [before, {"name": "after", "type": after}, *rest]}
    decoder = value_decoder("avro", SMALL, Naming(), SCHEMAS, envelope=EnvelopeRules("debezium"))
    found = decoder.decode([written(event(op, ROW), schema, number) for op in "cud"], np.zeros(3, np.uint8))
    assert {(one.place, one.kind) for one in found.refused} == {(0, "envelope"), (1, "envelope")}
    assert {one.message for one in found.refused} == {
        "expected a schema whose field 'after' holds the row: a record or null (in Avro a union of both)"
    }
    assert found.deletes.tolist() == [2]


@fuzz(150)
@given(st.data())
def test_both_readers_of_avro_agree(data: st.DataObject) -> None:
    good = [event["value"] for event in EVENTS if event["table"] == "lines"]
    values = data.draw(st.lists(st.sampled_from(good) | damaged(good), min_size=1, max_size=5))
    values = [good[0][:5] + value[5:] for value in values]  # of a known schema
    together = became(values, rows_of("lines"))
    with strict_reader_alone():
        alone = [became([value], rows_of("lines"))[0] for value in values]
    assert together == alone
    assert {one for one in together if isinstance(one, str)} <= {*KINDS, "delete", "message"}


@contextlib.contextmanager
def strict_reader_alone() -> Iterator[None]:
    """The quick look at many payloads of Avro leaves each of them to the strict reader."""

    def doubt_all(self: object, chosen: object, cursors: Any, found: object) -> None:
        cursors.doubtful[:] = True

    with mock.patch.object(avro_opening.EventOpener, "_read_all", new=doubt_all):
        yield


def test_the_rows_of_the_source_come_out_of_connect_json() -> None:
    columns = {**TABLES["accounts"], "at": "timestamp[us, UTC]"}
    fields = [pa.field(name, parse_type(type_), nullable=name != "id") for name, type_ in columns.items()]
    rows = RowSchema(pa.schema(fields), ("id",), ("id",))
    records = [one for one in samples("postgres_connect_json", "accounts") if one.value is not None]
    found = became([one.value or b"" for one in records], rows, "connect-json")
    assert [json.loads(one.value or b"")["payload"]["op"] for one in records] == ["c", "d"]
    assert found[1] == "delete"
    row: Any = found[0]
    after = json.loads(records[0].value or b"")["payload"]["after"]
    assert (row["id"], row["name"], row["at"].isoformat()) == (4, "four", "2024-01-01T00:00:00+00:00")
    assert (
        row["amount"]
        == Decimal(int.from_bytes(base64.b64decode(after["amount"]), "big")).scaleb(-2)
        == Decimal("40.00")
    )


def test_each_type_of_mariadb_comes_out_of_connect_json() -> None:
    """A time that goes beyond a day is a number or a duration."""
    spans = {"ti0": ("duration[us]", timedelta(hours=-838, minutes=-59, seconds=-59)), "ti6": ("time64[us]", AT.time())}
    dates = {"da": ("date32", AT.date()), "de": ("decimal128(12, 3)", Decimal("123456.789"))}
    types: dict[str, tuple[str, Any]] = {**MARIADB, **dates, **spans}
    fields = [pa.field("id", pa.int64()), *(pa.field(name, parse_type(type_)) for name, (type_, _) in types.items())]
    (record,) = samples("mariadb_connect_json", "all_types")
    naming = Naming(Names(dict.fromkeys(["id", *types], None) | {"pt": POINT}, ignores=True))
    (row,) = became(
        [record.value or b""], RowSchema(pa.schema(fields), ("id",), ("id",)), "connect-json", naming=naming
    )
    assert row == {"id": 3, **{name: value for name, (_, value) in types.items()}}
    rows = RowSchema(pa.schema([("id", pa.int64()), ("ti0", pa.time64("us"))]), ("id",), ("id",))
    ignoring = Naming(Names(dict.fromkeys(rows.columns.names), ignores=True))
    decoder = value_decoder("connect-json", rows, ignoring, envelope=EnvelopeRules("debezium"))
    (refused,) = decoder.decode([record.value or b""], np.zeros(1, np.uint8)).refused
    assert (refused.kind, "make the table's column int64, or a duration" in refused.message) == ("range", True)


def test_an_unsigned_bigint_of_mariadb_in_the_mode_precise_is_a_decimal() -> None:
    (record,) = samples("mariadb_connect_json", "all_types_precise")
    most = Decimal(2**64 - 1)
    columns = pa.schema([("id", pa.binary()), ("bu", pa.decimal128(20, 0)), ("iu", pa.uint32())])
    rows = RowSchema(columns, ("id",), ("id",))
    naming = Naming(Names(dict.fromkeys(rows.columns.names), ignores=True))
    found = became([record.value or b""], rows, "connect-json", naming=naming)
    assert found == [{"id": (2**64 - 1).to_bytes(9), "bu": most, "iu": 2**32 - 1}]


def test_other_values_of_connect_json() -> None:
    (truncate,) = [one.value or b"" for one in samples("postgres_connect_json", "lines")]
    events = [one.value or b"" for one in samples("postgres_connect_json", "keychg")]
    assert became([truncate], rows_of("lines"), "connect-json") == ["truncate"]
    rows = became(events, rows_of("keychg"), "connect-json")
    assert rows == [json.loads(one)["payload"]["after"] for one in events]
    plain = {"type": "struct", "fields": [{"field": "ts_ms", "type": "int64"}]}
    beside = json.dumps({"schema": plain, "payload": {"ts_ms": 1}}).encode()
    row = json.dumps({"schema": {**plain, "fields": [{"field": "id", "type": "int64"}]}, "payload": {"id": 1}}).encode()
    found = became([beside, row, events[0]], rows_of("keychg"), "connect-json")
    assert found == ["heartbeat", "wrong_format", rows[0]]
