"""One suite for every format of record values: what a ``ValueDecoder`` guarantees (``lancewal_ingest.decode.value_decoder``).

A format comes in with an entry in ``FORMATS``: how its decoder is made, and how a producer writes a row.  What is right is
Arrow's own array of the row's Python values, never another decoder.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Any, get_args
from uuid import UUID

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.names.ids import SchemaKey
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.settings.sections import Envelope, ValueFormat
from lancewal_core.table.contract import Contract
from lancewal_core.wal.writer_schemas import StoredSchema, WriterSchema, stored_schema
from lancewal_ingest.decode.connect.decoder import ConnectDecoder
from lancewal_ingest.decode.framed.frames import key_of_id
from lancewal_ingest.decode.framed.protobuf.schema import message_of
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.outcomes import KINDS, PASSED_OVER
from lancewal_ingest.decode.value_decoder import DecodedValues, HeaderValues, ValueDecoder
from lancewal_ingest.decode.weight import slot_bits
from lancewal_ingest.envelopes.envelope import EnvelopeRules
from lancewal_ingest.formats import value_decoder
from tests.support.fuzzing import damaged, fuzz

Row = Mapping[str, Any]

FIXED = [
    ("m", pa.map_(pa.string(), pa.int64())),
    ("fixes", pa.list_(pa.binary(24))),
    ("ls", pa.large_string()),
    ("lb", pa.large_binary()),
]
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.string()),
        ("small", pa.int8()),
        ("f", pa.float64()),
        ("ok", pa.bool_()),
        ("s", pa.string()),
        ("bin", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("ints", pa.list_(pa.int32())),
        ("st", pa.struct([("x", pa.int64()), ("t", pa.string())])),
        ("vec", pa.list_(pa.float64(), 2)),
        ("bits", pa.list_(pa.uint8(), 3)),
        ("vecs", pa.list_(pa.list_(pa.float64(), 8))),
        ("uid", pa.uuid()),
        ("sty", pa.struct([("t", pa.time64("us")), ("d", pa.duration("us")), *FIXED])),
    ]
)
ROWS = RowSchema(COLUMNS, primary_key=("id", "k"), region_key=("k",))
SECRET = "xq7secretqx"


@dataclass(frozen=True)
class Format:
    make: Callable[[RowSchema], ValueDecoder]
    write: Callable[[Row], bytes]
    """A row as a producer writes it; a column that is not named is absent, and one that the table has not is written too.
    ``TypeError`` for a row that cannot be written in the format."""
    lacks: frozenset[str] = frozenset()
    """Columns of types that the format has not."""
    envelope: Envelope = "none"
    """That of a format whose values tell their operations: all of this suite are upserts then."""

    def can(self, row: Row) -> Row:
        """The row without columns that the format has not."""
        return {name: value for name, value in row.items() if name not in self.lacks}

    def op(self, op: Op) -> Op:
        """The operation that a record of the format may have."""
        return op if self.envelope == "none" else Op.UPSERT


def as_json(row: Row) -> bytes:
    def form(value: object) -> str | int:
        match value:
            case bytes():
                return base64.b64encode(value).decode()
            case datetime():
                return value.isoformat().replace("+00:00", "Z")
            case date() | time():
                return value.isoformat()
            case UUID():
                return str(value)
            case timedelta():
                return value // timedelta(microseconds=1)
        raise TypeError(type(value))

    return json.dumps(row, default=form).encode()


class StoredSchemas:
    """The schemas that framed values of this suite name."""

    asked_first = False

    def __init__(self) -> None:
        self._versions: dict[SchemaKey, tuple[StoredSchema, ...]] = {}
        self._ids: dict[WriterSchema, int] = {}

    def id_of(self, schema: WriterSchema) -> int:
        number = self._ids.setdefault(schema, len(self._ids) + 1)
        self._versions[key_of_id(number)] = (stored_schema(schema, "a"),)
        return number

    def known(self, key: SchemaKey) -> Sequence[StoredSchema]:
        return self._versions.get(key, ())

    def read(self, key: SchemaKey, at_least: int = 1) -> Sequence[StoredSchema]:
        return self.known(key)


SCHEMAS = StoredSchemas()
PLAIN_OBJECT = WriterSchema("json-schema", "{}")


def framed(schema: WriterSchema, payload: bytes) -> bytes:
    return b"\0" + SCHEMAS.id_of(schema).to_bytes(4) + payload


def avro_of(value: object, empty: object = "long") -> object:
    """The Avro type of a Python value; items of a list without any are of the type ``empty``."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "long"
        case float():
            return "double"
        case str():
            return "string"
        case bytes():
            return "bytes"
        case datetime():
            return {"type": "long", "logicalType": "timestamp-micros"}
        case date():
            return {"type": "int", "logicalType": "date"}
        case UUID():
            return {"type": "string", "logicalType": "uuid"}
        case list():
            items = [item for item in value if item is not None]
            of = "double" if any(isinstance(item, float) for item in items) else avro_of(items[0]) if items else empty
            return {"type": "array", "items": of if None not in value else ["null", of]}
        case dict():
            return avro_record(value)
    raise TypeError(type(value))


def avro_record(row: Row) -> dict[str, object]:
    vector = {"type": "array", "items": "double"}
    fields = [
        {"name": name, "type": avro_of(value, vector if name == "vecs" else "long")} for name, value in row.items()
    ]
    return {"type": "record", "name": "r" + "".join(f"_{name}" for name in row), "fields": fields}


def as_avro(row: Row) -> bytes:
    schema, data = avro_record(row), io.BytesIO()
    try:
        fastavro.schemaless_writer(data, fastavro.parse_schema(schema), dict(row))
    except Exception as error:  # whatever it is: such a row cannot be written
        raise TypeError(str(error)) from error
    return framed(WriterSchema("avro", json.dumps(schema)), data.getvalue())


def connect_of(value: object, column: pa.DataType | None) -> dict[str, object]:
    """The schema of Kafka Connect for a Python value.  ``column``: its type, for values that do not tell one."""
    match value:
        case None:
            found = connect_of_column(column)
        case bool():
            found = {"type": "boolean"}
        case int():
            named = {"name": "io.debezium.time.MicroDuration"} if column == pa.duration("us") else {}
            found = {"type": "int64", **named}
        case float():
            found = {"type": "double"}
        case str():
            found = {"type": "string"}
        case bytes():
            found = {"type": "bytes"}
        case datetime() | date() | time() | timedelta() | UUID():
            found = connect_of_column(column)
        case list():
            items = [item for item in value if item is not None]
            of = None if column is None or not hasattr(column, "value_type") else column.value_type
            first = next((item for item in items if isinstance(item, float)), items[0] if items else None)
            found = {"type": "array", "items": connect_of(first, of)}
        case dict() if column is not None and pa.types.is_map(column):
            found = {"type": "map", "keys": {"type": "string"}, "values": {"type": "int64", "optional": True}}
        case dict():
            of = column if column is not None and pa.types.is_struct(column) else pa.struct([])
            types = {field.name: field.type for field in of}
            fields = [{"field": name, **connect_of(inner, types.get(name))} for name, inner in value.items()]
            found = {"type": "struct", "fields": fields}
        case _:
            raise TypeError(type(value))
    return {**found, "optional": True}


def connect_of_column(column: pa.DataType | None) -> dict[str, object]:
    if column is None:
        return {"type": "string"}
    if pa.types.is_list(column) or pa.types.is_fixed_size_list(column):
        return {"type": "array", "items": {**connect_of_column(column.value_type), "optional": True}}
    if pa.types.is_map(column):
        return connect_of({}, column)
    if pa.types.is_struct(column):
        return connect_of(dict.fromkeys(field.name for field in column), column)
    if pa.types.is_fixed_size_binary(column):
        return {"type": "bytes"}
    if pa.types.is_integer(column):
        return {"type": "int64"}
    plain: dict[pa.DataType, dict[str, object]] = {
        pa.bool_(): {"type": "boolean"},
        pa.float64(): {"type": "double"},
        pa.string(): {"type": "string"},
        pa.large_string(): {"type": "string"},
        pa.binary(): {"type": "bytes"},
        pa.large_binary(): {"type": "bytes"},
        pa.date32(): {"type": "int32", "name": "org.apache.kafka.connect.data.Date"},
        pa.timestamp("us", "UTC"): {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        pa.time64("us"): {"type": "int64", "name": "io.debezium.time.MicroTime"},
        pa.duration("us"): {"type": "int64", "name": "io.debezium.time.MicroDuration"},
        pa.uuid(): {"type": "string", "name": "io.debezium.data.Uuid"},
    }
    return plain[column]


def as_connect_json(row: Row) -> bytes:
    def form(value: object) -> object:
        match value:
            case datetime() | UUID() | timedelta() | bytes():
                return json.loads(as_json({"": value}))[""]
            case date():
                return (value - date(1970, 1, 1)).days
            case time():
                return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
        raise TypeError(type(value))

    fields = [
        {"field": name, **connect_of(value, COLUMNS.field(name).type if name in COLUMNS.names else None)}
        for name, value in row.items()
    ]
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": row}, default=form).encode()


def in_envelope(row: Row) -> bytes:
    return b'{"before":null,"after":%s,"source":{"version":"3"},"op":"c","ts_ms":1}' % as_json(row)


def as_avro_event(row: Row) -> bytes:
    source = {"type": "record", "name": "Source", "fields": [{"name": "db", "type": "string"}]}
    fields = [
        {"name": "after", "type": ["null", avro_record(row)]}, {"name": "source", "type": source},
        {"name": "op", "type": "string"},
    ]  # fmt: skip
    schema, data = {"type": "record", "name": "Envelope", "fields": fields}, io.BytesIO()
    try:
        event = {"after": dict(row), "source": {"db": "shop"}, "op": "c"}
        fastavro.schemaless_writer(data, fastavro.parse_schema(schema), event)
    except Exception as error:  # whatever it is: such a row cannot be written
        raise TypeError(str(error)) from error
    return framed(WriterSchema("avro", json.dumps(schema)), data.getvalue())


def as_connect_event(row: Row) -> bytes:
    written = json.loads(as_connect_json(row))
    fields = [
        {"field": "before", **written["schema"], "optional": True}, {"field": "after", **written["schema"], "optional": True},
        {"field": "source", "type": "struct", "fields": []}, {"field": "op", "type": "string"},
    ]  # fmt: skip
    payload = {"before": None, "after": written["payload"], "source": {}, "op": "c"}
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": payload}).encode()


def enveloped(name: ValueFormat, envelope: Envelope) -> Callable[[RowSchema], ValueDecoder]:
    rules = EnvelopeRules(envelope, never=frozenset(COLUMNS.names))
    return lambda rows: value_decoder(name, rows, schemas=SCHEMAS, envelope=rules)


PROTOBUF_TYPES = {"f": "optional double", "ok": "optional bool", "k": "optional string", "s": "optional string",
                  "t": "optional string", "uid": "optional string", "bin": "optional bytes",
                  "at": "optional google.protobuf.Timestamp", "vec": "repeated double", "bits": "repeated int64",
                  "vecs": "repeated bytes", "st": "optional google.protobuf.Empty"}  # fmt: skip
"""The Protobuf type of each field that is null."""


def protobuf_of(name: str, value: object) -> str:
    """The Protobuf type of a Python value."""
    match value:
        case None:
            return PROTOBUF_TYPES.get(name, "optional int64")
        case bool():
            return "optional bool"
        case int():
            return "optional int64"
        case float():
            return "optional double"
        case str() | UUID():
            return "optional string"
        case bytes():
            return "optional bytes"
        case datetime():
            return "optional google.protobuf.Timestamp"
        case dict():
            return f"optional M{name}"
        case list() if all(item is not None for item in value):
            last = max(value, key=lambda item: isinstance(item, float), default=None)
            return "repeated " + protobuf_of("", last).removeprefix("optional ")
    raise TypeError(type(value))


def protobuf_message(name: str, row: Row) -> str:
    inner = "".join(protobuf_message(f"M{field}", value) for field, value in row.items() if isinstance(value, dict))
    fields = "".join(f"{protobuf_of(field, value)} {field} = {n};" for n, (field, value) in enumerate(row.items(), 1))
    return f"message {name} {{ {inner} {fields} }}"


@cache
def protobuf_class(text: str) -> Any:
    return GetMessageClass(message_of(WriterSchema("protobuf", text), (0,)))


def protobuf_row(row: Row) -> dict[str, Any]:
    """The row as upb takes it."""
    given = {name: str(value) if isinstance(value, UUID) else value for name, value in row.items()}
    return {name: protobuf_row(value) if isinstance(value, dict) else value for name, value in given.items()}


def as_protobuf(row: Row) -> bytes:
    text = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/empty.proto"; '
        + protobuf_message("R", row)
    )
    try:
        message = protobuf_class(text)(**protobuf_row(row))
    except ValueError as error:
        raise TypeError(str(error)) from error
    return framed(WriterSchema("protobuf", text), b"\0" + message.SerializeToString())


def framed_by(name: ValueFormat) -> Callable[[RowSchema], ValueDecoder]:
    return lambda rows: value_decoder(name, rows, schemas=SCHEMAS)


FORMATS = {
    "json": Format(JsonDecoder, as_json),
    "connect-json": Format(ConnectDecoder, as_connect_json),
    "json-schema": Format(framed_by("json-schema"), lambda row: framed(PLAIN_OBJECT, as_json(row))),
    "avro": Format(framed_by("avro"), as_avro, frozenset({"sty"})),
    "json in debezium": Format(enveloped("json", "debezium"), in_envelope, envelope="debezium"),
    "avro in debezium": Format(enveloped("avro", "debezium"), as_avro_event, frozenset({"sty"}), envelope="debezium"),
    "connect-json in debezium": Format(enveloped("connect-json", "debezium"), as_connect_event, envelope="debezium"),
    "json unwrapped": Format(enveloped("json", "debezium-unwrapped"), as_json, envelope="debezium-unwrapped"),
    "avro unwrapped": Format(
        enveloped("avro", "debezium-unwrapped"), as_avro, frozenset({"sty"}), envelope="debezium-unwrapped"
    ),
    "protobuf": Format(framed_by("protobuf"), as_protobuf, frozenset({"sty", "day", "ints", "vecs"})),
}


def fields_of(values: Sequence[bytes]) -> HeaderValues:
    """The header of each value that names all fields of its schema, for a format in which no value tells them."""
    found: list[bytes | None] = []
    for value in values:
        versions = SCHEMAS.known(key_of_id(int.from_bytes(value[1:5])))
        writer = versions[0].writer if versions else None
        named: list[str] | None = None
        if writer is not None and writer.kind == "avro":
            named = [field["name"] for field in json.loads(writer.text)["fields"]]
        elif writer is not None and writer.kind == "protobuf":
            named = [field.name for field in message_of(writer, (0,)).fields]
        found.append(None if named is None else ",".join(named).encode())
    return {"lancewal.fields": pa.array(found, pa.binary())}


@pytest.fixture(params=FORMATS)
def format_(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


PATCHED = {name: one for name, one in FORMATS.items() if one.envelope == "none"}
every_format = pytest.mark.parametrize("format_", FORMATS.values(), ids=FORMATS)
"""For tests with drawn values, which share no fixture between examples."""

WHOLE: Row = {
    "id": 7, "k": "x", "small": -128, "f": 1.5, "ok": True, "s": SECRET, "bin": b"\x00\xff", "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 12, 0, 0, 5, tzinfo=UTC), "ints": [1, None, -2], "st": {"x": 1, "t": None}, "vec": [1.0, 2.5],
    "bits": [0, 255, 7], "vecs": [None, [0.5] * 8],
    "uid": UUID(int=2**100 + 7),
    "sty": {"t": time(23, 59, 59, 999_999), "d": timedelta(days=-3), "m": {"b": 1, "a": None},
            "fixes": [b"x" * 24, None], "ls": "", "lb": b""},
}  # fmt: skip
KEY: Row = {"id": 1, "k": "a"}
NOTHING = dict.fromkeys(["t", "d", "m", "fixes", "ls", "lb"])
WIDE: Row = {**KEY, "sty": {**NOTHING, "fixes": [None] * 50}}
MANY: Row = {**KEY, "sty": {**NOTHING, "m": {str(n): None for n in range(50)}}}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.floats(-(2.0**52), 2.0**52)
cells: dict[str, st.SearchStrategy[Any]] = {
    "small": st.integers(-128, 127),
    "f": numbers,
    "ok": st.booleans(),
    "s": texts,
    "bin": st.binary(max_size=8),
    "day": st.dates(date(1000, 1, 1), date(8999, 12, 31)),
    "at": st.datetimes(datetime(1000, 1, 1), datetime(8999, 12, 31)).map(lambda at: at.replace(tzinfo=UTC)),
    "ints": st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=3),
    "st": st.fixed_dictionaries({"x": st.none() | st.integers(-(2**63), 2**63 - 1), "t": st.none() | texts}),
    "vec": st.lists(numbers, min_size=2, max_size=2),
    "bits": st.lists(st.integers(0, 255), min_size=3, max_size=3),
    "uid": st.uuids(),
    "sty": st.fixed_dictionaries(
        {
            "t": st.none() | st.times(),
            "d": st.none() | st.timedeltas(timedelta(-(10**8)), timedelta(10**8)),
            "m": st.none() | st.dictionaries(texts, st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4),
            "fixes": st.none() | st.lists(st.none() | st.binary(min_size=24, max_size=24), max_size=5),
            "ls": st.none() | texts,
            "lb": st.none() | st.binary(max_size=9),
        }
    ),
    "vecs": st.lists(st.none() | st.lists(numbers, min_size=8, max_size=8), max_size=3),
}
rows = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1), "k": texts},
    optional={name: st.none() | cell for name, cell in cells.items()},
)
ops = st.sampled_from([Op.UPSERT, Op.PATCH, Op.DELETE])


def decoded(decoder: ValueDecoder, values: Sequence[bytes], of: Sequence[Op] | None = None) -> DecodedValues:
    """What became of ``values``; each is one row, one refusal of a known kind, or passed over, and all columns are the
    table's."""
    headers = {name: array for name, array in fields_of(values).items() if name in decoder.headers}
    found = decoder.decode(values, np.array(of or [Op.UPSERT] * len(values), dtype=np.uint8), headers)
    places = [int(place) for part in found.parts for place in part.indexes] + [one.place for one in found.refused]
    places += [int(place) for passed in (*found.passed_over.values(), found.deletes) for place in passed]
    assert found.passed_over.keys() <= PASSED_OVER.keys()
    assert sorted(places) == list(range(len(values)))
    for part in found.parts:
        assert [column.type for column in part.columns] == COLUMNS.types
        for array in (*part.columns, part.ops, part.present):
            array.validate(full=True)
            assert len(array) == len(part.indexes)
        assert [part.columns[COLUMNS.names.index(name)].null_count for name in ROWS.primary_key] == [0, 0]
    assert {one.kind for one in found.refused} <= KINDS.keys()
    return found


def outcomes(found: DecodedValues) -> dict[int, str]:
    """What became of each value, as text in which -0.0 is not 0.0 and a timestamp is a number."""
    become = {one.place: f"{one.kind}: {one.message}" for one in found.refused}
    become |= {int(place): "delete" for place in found.deletes}
    become |= {int(place): kind for kind, passed in found.passed_over.items() for place in passed}
    for part in found.parts:
        arrays = [a.cast(pa.int64()) if pa.types.is_timestamp(a.type) else a for a in part.columns]
        columns = [array.to_pylist() for array in (*arrays, part.ops, part.present)]
        become |= {int(place): repr(cells) for place, *cells in zip(part.indexes, *columns, strict=True)}
    return become


def refusals(found: DecodedValues) -> dict[int, str]:
    return {one.place: one.kind for one in found.refused}


@every_format
@fuzz(25)
@given(st.lists(st.tuples(rows, ops), min_size=1, max_size=6))
def test_what_a_producer_has_written_is_what_the_columns_hold(format_: Format, written: list[tuple[Row, Op]]) -> None:
    written = [(format_.can(row), format_.op(op)) for row, op in written]
    found = decoded(format_.make(ROWS), [format_.write(row) for row, _ in written], [op for _, op in written])
    assert found.refused == []
    for part in found.parts:
        chosen = [written[place] for place in part.indexes]
        for field, column in zip(COLUMNS, part.columns, strict=True):
            expected = pa.array([row.get(field.name) for row, _ in chosen], type=field.type)
            assert column.to_pylist() == expected.to_pylist(), field.name
        assert part.ops.to_pylist() == [int(op) for _, op in chosen]
        bits = [sum(1 << COLUMNS.names.index(name) for name in row) for row, _ in chosen]
        expected_bits = [
            number.to_bytes(2, "little") if op is Op.PATCH else None
            for number, (_, op) in zip(bits, chosen, strict=True)
        ]
        assert part.present.to_pylist() == expected_bits


@pytest.mark.parametrize("format_", PATCHED.values(), ids=PATCHED)
def test_a_patch_tells_absent_from_null(format_: Format) -> None:
    values = [format_.write(KEY), format_.write({**KEY, "s": None}), format_.write({**KEY, "vecs": None, "ok": True})]
    found = decoded(format_.make(ROWS), values, [Op.PATCH] * 3)
    present = {
        int(i): bits for part in found.parts for i, bits in zip(part.indexes, part.present.to_pylist(), strict=True)
    }
    assert present == {0: bytes([0b11, 0]), 1: bytes([0b100011, 0]), 2: bytes([0b10011, 0b100000])}


@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        ({}, {"missing_key"}),
        ({"id": 1}, {"missing_key"}),
        ({"id": None, "k": "a"}, {"missing_key"}),
        ({**KEY, "more": 1}, {"unknown_column"}),
        ({**KEY, "st": {"x": 1, "more": None}}, {"unknown_column"}),
        ({**KEY, "small": 128}, {"range"}),
        ({**KEY, "ints": [2**31]}, {"range"}),
        ({"id": 2**63, "k": "a"}, {"range"}),
        ({**KEY, "small": 1.5}, {"type", "range"}),
        ({**KEY, "small": "1.5"}, {"type"}),
        ({**KEY, "s": 1}, {"type"}),
        ({**KEY, "ok": 1}, {"type"}),
        ({**KEY, "ints": {"x": 1}}, {"type"}),
        ({**KEY, "st": [1]}, {"type"}),
        ({**KEY, "vec": [1.0]}, {"type", "range"}),
        ({**KEY, "vec": [1.0, None]}, {"type", "range"}),
        ({**KEY, "bits": [0, 1]}, {"type", "range"}),
        ({**KEY, "bits": [0, 1, None]}, {"type", "range"}),
        ({**KEY, "bits": [0, 1, 256]}, {"type", "range"}),
        ({**KEY, "bits": [0, -1, 0]}, {"type", "range"}),
        ({**KEY, "bits": [0, 1.5, 0]}, {"type", "range"}),
        ({**KEY, "uid": "1234"}, {"type"}),
        ({**KEY, "uid": b"1234"}, {"type"}),
        ({**KEY, "sty": {"t": "24:00:00"}}, {"type", "range"}),
        ({**KEY, "sty": {"d": 2**63}}, {"range"}),
        ({**KEY, "sty": {"fixes": [b"x" * 23]}}, {"type", "range"}),
        ({**KEY, "sty": {"fixes": [b"x" * 25]}}, {"type", "range"}),
    ],
    ids=str,
)
def test_what_no_row_can_say_is_refused_whatever_the_operation(format_: Format, row: Row, kinds: set[str]) -> None:
    """A format that cannot write such a value has nothing to refuse, and its ``write`` raises ``TypeError``."""
    good = format_.write(format_.can(WHOLE))
    try:
        bad = format_.write(row)
    except TypeError:
        pytest.skip("cannot be written in this format")
    decoder = format_.make(ROWS)
    allowed = {*kinds, "unusable_schema"} if decoder.schemas_have_fields else kinds
    for op in {format_.op(op) for op in Op}:
        (refused,) = decoded(decoder, [good, bad, good], [op] * 3).refused
        assert (refused.place, refused.kind in allowed) == (1, True), (op, refused)


@every_format
@fuzz(80)
@given(st.data())
def test_any_bytes_are_a_row_or_refused_and_change_none_of_their_neighbours(
    format_: Format, data: st.DataObject
) -> None:
    written = [format_.write(format_.can(WHOLE)), format_.write(KEY)]
    values = data.draw(st.lists(damaged(written) | st.sampled_from(written), min_size=1, max_size=6))
    of = [format_.op(op) for op in data.draw(st.lists(ops, min_size=len(values), max_size=len(values)))]
    used = format_.make(ROWS)
    together = outcomes(decoded(used, values, of))
    alone = {
        place: outcomes(decoded(format_.make(ROWS), [value], [op]))[0]
        for place, (value, op) in enumerate(zip(values, of, strict=True))
    }
    assert together == alone
    backwards = outcomes(decoded(used, values[::-1], of[::-1]))
    assert [backwards[place] for place in reversed(range(len(values)))] == [
        alone[place] for place in range(len(values))
    ]


@every_format
@fuzz(80)
@given(st.data())
def test_a_refusal_tells_nothing_of_the_value(format_: Format, data: st.DataObject) -> None:
    row = {
        **format_.can(WHOLE),
        **data.draw(st.sampled_from([{"ok": SECRET}, {SECRET: 1}, {"day": SECRET}, {"st": {SECRET: 1}}, {}])),
    }
    for one in decoded(format_.make(ROWS), [data.draw(damaged([format_.write(row)]))]).refused:
        assert SECRET not in one.message
        assert len(one.message) < 1000


def test_among_many_good_values_a_bad_one_is_refused_alone(format_: Format) -> None:
    values = [format_.write({**format_.can(WHOLE), "id": number}) for number in range(1000)]
    of = [format_.op(list(Op)[number % 3]) for number in range(1000)]
    bad = {17: values[17][: len(values[17]) // 2], 500: b"", 999: format_.write({"k": "a"})}
    found = decoded(format_.make(ROWS), [bad.get(number, value) for number, value in enumerate(values)], of)
    assert refusals(found).keys() == bad.keys()
    ids = {
        int(place): key
        for part in found.parts
        for place, key in zip(part.indexes, part.columns[0].to_pylist(), strict=True)
    }
    assert ids == {number: number for number in range(1000) if number not in bad}


def test_a_format_names_its_headers(format_: Format) -> None:
    """Those of each value come beside it, and others change nothing."""
    decoder, values = format_.make(ROWS), [format_.write(KEY), format_.write(format_.can(WHOLE))]
    assert all(decoder.headers)
    nothing = {name: pa.nulls(2, pa.binary()) for name in decoder.headers}
    found = decoder.decode(values, np.zeros(2, np.uint8), nothing)
    assert outcomes(found) == outcomes(decoder.decode(values, np.zeros(2, np.uint8)))


def test_no_values_give_no_rows(format_: Format) -> None:
    assert outcomes(decoded(format_.make(ROWS), [])) == {}


@every_format
@fuzz(25)
@given(st.lists(rows, min_size=1, max_size=6))
def test_no_row_takes_more_than_its_value_may_grow_to(format_: Format, written: list[Row]) -> None:
    written = [format_.can(row) for row in written]
    decoder = format_.make(ROWS)
    fixed = -(-sum(slot_bits(field.type) for field in COLUMNS) // 8)
    values = [
        format_.write(format_.can(row))
        for row in [*written, {**KEY, "vecs": [None] * 50}, {**KEY, "ints": [1] * 50}, WIDE, MANY]
    ]
    for value, grown in zip(values, decoder.growth.each(values).tolist(), strict=True):
        (part,) = decoded(decoder, [value]).parts
        ends = 4 * sum(map(_offset_ends, COLUMNS.types))
        took = pa.RecordBatch.from_arrays(list(part.columns), schema=COLUMNS).nbytes
        assert took <= fixed + grown + ends
        assert grown <= decoder.growth.largest(len(value))
        assert decoder.growth.each([None, value]).tolist() == [0, grown]


def _offset_ends(type_: pa.DataType) -> int:
    """Arrow keeps an offset more than it has values; a batch of one row shows it."""
    wide = 2 * int(type_ in (pa.large_string(), pa.large_binary()))
    own = pa.types.is_string(type_) or pa.types.is_binary(type_) or pa.types.is_list(type_) or pa.types.is_map(type_)
    return wide + int(own) + sum(_offset_ends(type_.field(number).type) for number in range(type_.num_fields))


def test_threads_share_a_decoder(format_: Format) -> None:
    decoder = format_.make(ROWS)
    batches = [
        [
            format_.write({"id": number, "k": str(batch), list(cells)[number % len(cells)]: None})
            for number in range(200)
        ]
        for batch in range(8)
    ]
    patches = [format_.op(Op.PATCH)] * 200
    expected = [outcomes(decoded(format_.make(ROWS), values, patches)) for values in batches]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda values: outcomes(decoded(decoder, values, patches)), batches))
    assert found == expected


def test_every_format_that_a_contract_can_name_is_in_this_suite() -> None:
    named = Contract.model_fields["value_format"].annotation.__args__  # type: ignore[union-attr] # a Literal
    assert set(named) == {name for name, one in FORMATS.items() if one.envelope == "none"}
    assert {one.envelope for one in FORMATS.values()} == set(get_args(Envelope))
    for name in named:
        assert type(value_decoder(name, ROWS)) is type(FORMATS[name].make(ROWS))
