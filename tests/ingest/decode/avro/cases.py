"""Random Avro schemas, each with its column, values to write, and the cells that these are: the oracle of the decoder."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lancewal_core.rows.schema import RowSchema
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.avro.decoder import AvroFormat, AvroPayloads
from lancewal_ingest.decode.naming import PLAIN, Naming

LONG = st.one_of(
    st.integers(-70, 70), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, 2**55, -(2**55)])
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@dataclass(frozen=True)
class Drawn:
    """A type: its schema, the column, and pairs of what is written and the cell."""

    avro: Any
    column: pa.DataType
    pairs: st.SearchStrategy[tuple[Any, Any]]


def plain(avro: Any, column: pa.DataType, values: st.SearchStrategy[Any]) -> Drawn:
    return Drawn(avro, column, values.map(lambda value: (value, value)))


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def _float32(value: float) -> float:
    return float(np.float32(value))


def _decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal(f"{unscaled}e-{scale}")


def _two_complement(unscaled: int, size: int | None = None) -> bytes:
    size = size or (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


FLOATS = st.floats(width=32, allow_nan=False)
LEAVES: list[Drawn] = [
    plain("boolean", pa.bool_(), st.booleans()),
    plain("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    plain("int", pa.int8(), st.integers(-128, 127)),
    plain("int", pa.uint64(), st.integers(0, 2**31 - 1)),
    plain("long", pa.int64(), LONG),
    plain("long", pa.uint16(), st.integers(0, 2**16 - 1)),
    plain("long", pa.float64(), st.integers(-(2**53), 2**53)),
    plain("float", pa.float32(), FLOATS),
    plain("float", pa.float64(), FLOATS),
    plain("double", pa.float64(), st.floats(allow_nan=False)),
    plain("string", pa.string(), TEXT),
    plain("bytes", pa.binary(), st.binary(max_size=6)),
    plain(logical("int", "date"), pa.date32(), st.integers(-(2**31), 2**31 - 1)),
    plain(logical("int", "time-millis"), pa.int32(), st.integers(0, 86_399_999)),
    plain(logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), LONG),
    plain(logical("long", "timestamp-nanos"), pa.timestamp("ns", "UTC"), LONG),
    plain(logical("long", "local-timestamp-millis"), pa.timestamp("ms"), LONG),
    plain(logical("string", "uuid"), pa.string(), TEXT),
    Drawn(
        logical("long", "timestamp-millis"),
        pa.timestamp("us", "UTC"),
        st.integers(-(2**53), 2**53).map(lambda value: (value, value * 1000)),
    ),
    Drawn(
        {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"},
        pa.timestamp("us", "UTC"),
        st.datetimes().map(lambda at: (f"{at.isoformat()}Z", (at - datetime(1970, 1, 1)) // timedelta(microseconds=1))),
    ),
    Drawn(
        logical("long", "timestamp-nanos"),
        pa.timestamp("ms", "UTC"),
        st.integers(-(2**40), 2**40).map(lambda value: (value * 10**6, value)),
    ),
    Drawn(
        logical("bytes", "decimal", precision=9, scale=2),
        pa.decimal128(12, 4),
        st.integers(-999_999_999, 999_999_999).map(lambda value: (_two_complement(value), _decimal(value, 2))),
    ),
    Drawn(
        logical("bytes", "decimal", precision=38, scale=10),
        pa.decimal128(38, 10),
        st.one_of(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-300, 300), LONG).map(
            lambda value: (_two_complement(value), _decimal(value, 10))
        ),
    ),
]
_count = iter(range(10**9))


@st.composite
def named_types(draw: st.DrawFn) -> Drawn:
    name = f"n{next(_count)}"
    match draw(st.integers(0, 3)):
        case 0:
            symbols = draw(
                st.lists(
                    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,4}", fullmatch=True), min_size=1, max_size=70, unique=True
                )
            )
            return plain({"type": "enum", "name": name, "symbols": symbols}, pa.string(), st.sampled_from(symbols))
        case 1:
            size = draw(st.integers(1, 9))
            return plain(
                {"type": "fixed", "name": name, "size": size}, pa.binary(), st.binary(min_size=size, max_size=size)
            )
        case 2:
            size = draw(st.integers(5, 16))
            avro = {"type": "fixed", "name": name, "size": size, "logicalType": "decimal", "precision": 11, "scale": 3}
            values = st.integers(-(10**11) + 1, 10**11 - 1)
            return Drawn(
                avro, pa.decimal128(20, 3), values.map(lambda one: (_two_complement(one, size), _decimal(one, 3)))
            )
        case _:
            vector = st.lists(FLOATS, min_size=3, max_size=3)
            avro = {"type": "fixed", "name": name, "size": 12}
            return Drawn(avro, pa.list_(pa.float32(), 3), vector.map(lambda one: (np.array(one, "<f4").tobytes(), one)))


def _nullable(inner: Drawn, last: bool) -> Drawn:
    avro = [inner.avro, "null"] if last else ["null", inner.avro]
    return Drawn(avro, inner.column, st.one_of(st.just((None, None)), inner.pairs))


def _list(inner: Drawn, size: int) -> Drawn:
    pairs = st.lists(inner.pairs, max_size=size).map(
        lambda all_: ([one for one, _ in all_], [cell for _, cell in all_])
    )
    return Drawn({"type": "array", "items": inner.avro}, pa.list_(inner.column), pairs)


def _map(inner: Drawn) -> Drawn:
    pairs = st.lists(st.tuples(TEXT, inner.pairs), max_size=4, unique_by=lambda one: one[0]).map(
        lambda all_: ({key: one for key, (one, _) in all_}, [(key, cell) for key, (_, cell) in all_])
    )
    return Drawn({"type": "map", "values": inner.avro}, pa.map_(pa.string(), inner.column), pairs)


def _vector(inner: Drawn, size: int) -> Drawn:
    pairs = st.lists(inner.pairs, min_size=size, max_size=size)
    both = pairs.map(lambda all_: ([one for one, _ in all_], [cell for _, cell in all_]))
    return Drawn({"type": "array", "items": inner.avro}, pa.list_(inner.column, size), both)


VECTORS = [
    _vector(plain("float", pa.float32(), FLOATS), 3),
    _vector(plain("float", pa.float64(), FLOATS), 2),
    _vector(plain(["null", "double"], pa.float64(), st.floats(allow_nan=False)), 2),
    _vector(plain("int", pa.uint8(), st.integers(0, 255)), 4),
]


def _struct(inner: Sequence[Drawn], extra: bool) -> Drawn:
    names = [f"m{number}" for number in range(len(inner))]
    fields = [{"name": name, "type": one.avro} for name, one in zip(names, inner, strict=True)]
    column = pa.struct([pa.field(name, one.column) for name, one in zip(names, inner, strict=True)])
    pairs = st.tuples(*[one.pairs for one in inner]).map(
        lambda all_: (
            {name: one for name, (one, _) in zip(names, all_, strict=True)},
            {name: cell for name, (_, cell) in zip(names, all_, strict=True)} | ({"absent": None} if extra else {}),
        )
    )
    if extra:
        column = pa.struct([*column, pa.field("absent", pa.list_(pa.int8()))])
    return Drawn({"type": "record", "name": f"n{next(_count)}", "fields": fields}, column, pairs)


def _larger(text: bool) -> Drawn:
    """A union of several types, which is a struct of one member each."""
    column = pa.struct([("long", pa.int64()), ("boolean", pa.bool_()), ("string", pa.string())])
    nothing = {"long": None, "boolean": None, "string": None}
    pairs = st.one_of(
        st.just((None, None)),
        st.booleans().map(lambda one: (one, {**nothing, "boolean": one})),
        st.integers(-(2**63), 2**63 - 1).map(lambda one: (one, {**nothing, "long": one})),
        TEXT.map(lambda one: (one, {**nothing, "string": one})) if text else st.just((None, None)),
    )
    return Drawn(["boolean", "null", "string", "long"], column, pairs)


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> Drawn:
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(st.one_of(st.sampled_from(LEAVES), named_types()))
    match draw(st.integers(0, 5)):
        case 0 | 1:
            inner = draw(types(depth - 1).filter(lambda one: not isinstance(one.avro, list)))
            return _nullable(inner, draw(st.booleans()))
        case 2:
            return _list(draw(types(depth - 1)), draw(st.sampled_from([3, 3, 70])))
        case 3:
            return _map(draw(types(depth - 1)))
        case 4:
            return draw(st.sampled_from([*VECTORS, _larger(True), _larger(False)]))
        case _:
            return _struct(draw(st.lists(types(depth - 1), min_size=1, max_size=3)), draw(st.booleans()))


def record(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "Row", "fields": [{"name": name, "type": type_} for name, type_ in fields]}


def written(avro: Any, values: Sequence[Any]) -> list[bytes]:
    """The datums as fastavro writes them."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(avro)))
    datums = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        datums.append(out.getvalue())
    return datums


def decoder(avro: Any, columns: pa.Schema, naming: Naming = PLAIN, key: str = "id") -> AvroPayloads:
    rows = RowSchema(columns, (key,), (key,))
    schema = WriterSchema("avro", avro if isinstance(avro, str) else json.dumps(avro))
    return AvroFormat(rows, naming).decoder(schema, ())


def number(value: int) -> bytes:
    """A number as Avro writes it."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
