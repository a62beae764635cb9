"""The result for a value is the same in a batch and alone, in a new decoder and a used one, and in any text of the value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows.schema import Op
from lancewal_ingest.decode.connect.decoder import ConnectDecoder
from lancewal_ingest.decode.naming import PLAIN, Names, Naming
from tests.ingest.decode.connect.cases import KEY, Schema, decode, decoder, field, struct
from tests.support.fuzzing import fuzz

DECIMAL = field("c", "bytes", "org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"})
TIMES = "org.apache.kafka.connect.data."
NUMBERS = [0, -1, 127, 128, -32769, 2**24 + 1, 2**31, 2**53 + 1, 2**63, 10**30]
BYTES = ["", "AA==", "AAE=", "/w==", "/////////////////////w==", "AA", "*", " AA=="]
ODD: list[Any] = [None, True, "x", 1.5, {}, [], [[1]], {"a": None}, "NaN", 10**30]
"""Cells that most types do not have."""


class Plain(NamedTuple):
    schema: Schema
    columns: Sequence[pa.DataType]
    cells: Sequence[Any]


PLAINS = [
    Plain({"type": "int8"}, [pa.int8(), pa.int64(), pa.uint8(), pa.float32()], NUMBERS),
    Plain({"type": "int64"}, [pa.int64(), pa.int16(), pa.uint64(), pa.float64()], NUMBERS),
    Plain({"type": "float"}, [pa.float32(), pa.float64()], [0.1, -0.0, 1e39, 1e-46, 16777217, "NaN", "-Infinity"]),
    Plain({"type": "boolean"}, [pa.bool_()], [True, False]),
    Plain(
        {"type": "string"}, [pa.string()], ["", "é\0😀", "\ud800", '"payload":', '{"schema": 1, "payload": 2}', "\\]}"]
    ),
    Plain({"type": "bytes"}, [pa.binary(), pa.binary(2), pa.list_(pa.uint8(), 2)], BYTES),
    Plain(DECIMAL, [pa.decimal128(5, 2), pa.decimal128(38, 10), pa.binary()], BYTES),
    Plain({"type": "int32", "name": f"{TIMES}Time"}, [pa.time32("ms"), pa.time32("s")], [0, -1, 1500, 86_400_000]),
    Plain(
        {"type": "int64", "name": f"{TIMES}Timestamp"},
        [pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC"), pa.timestamp("us")],
        [0, 1500, -(10**12), 10**17, 2**63],
    ),
    Plain(
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        [pa.timestamp("us", "UTC"), pa.string()],
        [
            "2020-01-01T00:00:00Z",
            "1969-12-31T23:59:59.5+02:00",
            "2020-01-01T00:00:00.123456789Z",
            "2020-02-30T00:00:00Z",
        ],
    ),
]


class Typed(NamedTuple):
    schema: Schema
    column: pa.DataType
    cells: st.SearchStrategy[Any]


@st.composite
def types(draw: st.DrawFn, depth: int) -> Typed:
    """A type of a schema, a column that mostly takes it, and cells that it mostly has."""
    kind = draw(
        st.sampled_from(["plain", "plain", "array", "vector", "map", "struct", "struct"] if depth else ["plain"])
    )
    optional = draw(st.booleans())
    cells: st.SearchStrategy[Any]
    if kind == "plain":
        plain = draw(st.sampled_from(PLAINS))
        found = Typed(plain.schema, draw(st.sampled_from(plain.columns)), st.sampled_from(plain.cells))
    elif kind == "vector":
        items, column = draw(st.sampled_from([("float", pa.float32()), ("int8", pa.int8()), ("int16", pa.uint8())]))
        cells = st.lists(st.sampled_from([0, 1, 1.5, 300, None]), min_size=1, max_size=3)
        found = Typed({"type": "array", "items": {"type": items}}, pa.list_(column, 2), cells)
    elif kind == "struct":
        inner = [draw(types(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
        held = [draw(st.integers(0, 3)) > 0 for _ in inner]
        fields = [{**one.schema, "field": f"m{n}"} for n, one in enumerate(inner) if held[n]]
        members = st.fixed_dictionaries(
            {}, optional={**{f"m{n}": one.cells for n, one in enumerate(inner)}, "other": st.just(1)}
        )
        whole = st.fixed_dictionaries({f"m{n}": one.cells for n, one in enumerate(inner) if held[n]})
        column = pa.struct([(f"m{n}", one.column) for n, one in enumerate(inner)])
        found = Typed({"type": "struct", "fields": fields}, column, st.one_of(whole, whole, members))
    else:
        one = draw(types(depth - 1))
        if kind == "array":
            found = Typed({"type": "array", "items": one.schema}, pa.list_(one.column), st.lists(one.cells, max_size=3))
        else:
            cells = st.dictionaries(st.sampled_from(["", "a", "é"]), one.cells, max_size=2)
            map_ = {"type": "map", "keys": {"type": "string"}, "values": one.schema}
            found = Typed(map_, pa.map_(pa.string(), one.column), cells)
    cells = st.one_of(found.cells, found.cells, found.cells, found.cells, found.cells, st.none(), st.sampled_from(ODD))
    return Typed({**found.schema, **({"optional": True} if optional else {})}, found.column, cells)


def texts(schema: Schema, payload: object) -> list[bytes]:
    """A value in several texts.  All have one schema and one payload."""
    s, p = json.dumps(schema), json.dumps(payload, ensure_ascii=False).encode("utf-8", "surrogatepass")
    short = json.dumps(schema, separators=(",", ":")).encode()
    return [
        b'{"schema": %s, "payload": %s}' % (s.encode(), p),
        b'{"payload": %s, "schema": %s}' % (p, s.encode()),
        b' {"schema":%s\n,"payload":\t%s }\n' % (short, p),
        b'{"sch\\u0065ma": %s, "payload": %s}' % (s.encode(), p),
    ]


def outcomes(of: ConnectDecoder, values: Sequence[bytes], op: Op) -> list[str]:
    """What became of each value, its refusal's message included."""
    found = decode(of, values, op)
    become = {one.place: repr((one.kind, one.kind == "not_json" or one.message)) for one in found.refused}
    for part in found.parts:
        for row, place in enumerate(part.indexes.tolist()):
            cells = [column.slice(row, 1).to_string() for column in part.columns]
            become[place] = repr((cells, part.ops[row].as_py(), part.present[row].as_py()))
    return [become[place] for place in range(len(values))]


@fuzz(150)
@given(st.data())
def test_neighbours_earlier_values_and_the_text_change_nothing(data: st.DataObject) -> None:
    one, two = data.draw(types(2)), data.draw(types(1))
    schema = struct(KEY, {**one.schema, "field": "c"}, {**two.schema, "field": "d"})
    columns = {"c": one.column, "d": two.column}
    if passes := data.draw(st.booleans()):
        columns = {"c": one.column}
    rows = st.fixed_dictionaries({"c": one.cells, "d": two.cells}, optional={"id": st.just("x")})
    payloads = [{"id": n, **data.draw(rows)} for n in range(data.draw(st.integers(1, 6)))]
    op = data.draw(st.sampled_from([Op.UPSERT, Op.UPSERT, Op.PATCH, Op.DELETE]))
    ways = list(zip(*(texts(schema, payload) for payload in payloads), strict=True))

    def made() -> ConnectDecoder:
        return decoder(columns, Naming(_names(columns)) if passes else PLAIN)

    used = made()
    together = outcomes(used, ways[0], op)
    assert outcomes(used, ways[0], op) == together
    for way in ways:
        assert outcomes(made(), way, op) == together
        assert [outcomes(used, [value], op)[0] for value in way] == together


def _names(columns: dict[str, pa.DataType]) -> Names:
    """Names by which unknown fields of all levels are passed over."""
    return Names({"id": None, **{name: _within(type_) for name, type_ in columns.items()}}, ignores=True)


def _within(type_: pa.DataType) -> Names | None:
    while pa.types.is_list(type_):
        type_ = type_.value_type
    return Names({one.name: _within(one.type) for one in type_}, ignores=True) if pa.types.is_struct(type_) else None
