"""Random Protobuf messages, each field with its column, values to write, and the cells that these are: upb writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import strategies as st

from lancewal_core.rows.schema import RowSchema
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.framed.protobuf.decoder import ProtobufFormat, ProtobufPayloads
from lancewal_ingest.decode.framed.protobuf.schema import message_of
from lancewal_ingest.decode.naming import PLAIN, Naming

HEAD = """syntax = "{syntax}";
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto"; import "google/protobuf/wrappers.proto";
enum Kind {{ ZERO = 0; NEGATIVE = -1; LARGE = 2147483647; SEVEN = 7; }}
"""
ABSENT = object()
"""The value of a field that is not written."""
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
KINDS = {0: "ZERO", -1: "NEGATIVE", 2**31 - 1: "LARGE", 7: "SEVEN"}


def whole(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    small = st.integers(max(least, -70), 200)
    return st.one_of(small, st.integers(least, most), st.sampled_from([least, most, 1 << (bits - 2)]))


@dataclass(frozen=True)
class Leaf:
    """A type of one value: its name, the column, and pairs of what is written and the cell."""

    proto: str
    column: pa.DataType
    pairs: st.SearchStrategy[tuple[Any, Any]]
    zero: Any = None
    """The cell of an absent value without presence; None for messages, which have it always."""
    inner: str = ""
    """Declarations of the messages that it needs."""


def plain(proto: str, column: pa.DataType, values: st.SearchStrategy[Any], zero: Any) -> Leaf:
    return Leaf(proto, column, values.map(lambda value: (value, value)), zero)


FLOATS = st.floats(width=32, allow_nan=False)
DOUBLES = st.floats(allow_nan=False)
NANOS = st.integers(0, 999_999_999)
WRAPPERS = {
    "Int64": (pa.int64(), whole(64, signed=True)), "UInt32": (pa.int64(), whole(32, signed=False)),
    "Bool": (pa.bool_(), st.booleans()), "Double": (pa.float64(), DOUBLES), "String": (pa.string(), TEXT),
    "Bytes": (pa.binary(), st.binary(max_size=4)),
}  # fmt: skip


def seconds_of(value: tuple[int, int], per: int) -> tuple[Any, int]:
    seconds, nanos = value
    return {"seconds": seconds, "nanos": nanos}, seconds * per + nanos * per // 10**9


LEAVES: list[Leaf] = [
    plain("int32", pa.int32(), whole(32, signed=True), 0),
    plain("int32", pa.int8(), st.integers(-128, 127), 0),
    plain("int64", pa.int64(), whole(64, signed=True), 0),
    plain("int64", pa.uint16(), st.integers(0, 2**16 - 1), 0),
    Leaf("int64", pa.float64(), st.integers(-(2**53), 2**53).map(lambda value: (value, float(value))), 0.0),
    plain("uint32", pa.uint32(), whole(32, signed=False), 0),
    plain("uint64", pa.uint64(), whole(64, signed=False), 0),
    plain("uint64", pa.int64(), st.integers(0, 2**63 - 1), 0),
    plain("sint32", pa.int32(), whole(32, signed=True), 0),
    plain("sint64", pa.int64(), whole(64, signed=True), 0),
    plain("fixed32", pa.uint32(), whole(32, signed=False), 0),
    plain("fixed64", pa.uint64(), whole(64, signed=False), 0),
    plain("sfixed32", pa.int64(), whole(32, signed=True), 0),
    plain("sfixed64", pa.int64(), whole(64, signed=True), 0),
    plain("bool", pa.bool_(), st.booleans(), False),
    plain("float", pa.float32(), FLOATS, 0.0),
    plain("float", pa.float64(), FLOATS, 0.0),
    plain("double", pa.float64(), DOUBLES, 0.0),
    plain("string", pa.string(), TEXT, ""),
    plain("string", pa.large_string(), TEXT, ""),
    plain("bytes", pa.binary(), st.binary(max_size=6), b""),
    Leaf("Kind", pa.string(), st.sampled_from(list(KINDS.items())), "ZERO"),
    Leaf(
        "google.protobuf.Timestamp",
        pa.timestamp("us", "UTC"),
        st.tuples(st.integers(-62_135_596_800, 253_402_300_799), NANOS.map(lambda n: n // 1000 * 1000)).map(
            lambda value: seconds_of(value, 10**6)
        ),
    ),
    Leaf(
        "google.protobuf.Timestamp",
        pa.timestamp("ns", "UTC"),
        st.tuples(st.integers(-9_223_372_036, 9_223_372_035), NANOS).map(lambda value: seconds_of(value, 10**9)),
    ),
    Leaf(
        "google.protobuf.Duration",
        pa.duration("ms"),
        st.tuples(st.integers(-315_576_000_000, 0), st.integers(-999, 0)).map(
            lambda value: seconds_of((value[0], value[1] * 10**6), 1000)
        ),
    ),
    *(
        Leaf(f"google.protobuf.{name}Value", column, values.map(lambda value: ({"value": value}, value)))
        for name, (column, values) in WRAPPERS.items()
    ),
]
_count = iter(range(10**9))


@dataclass(frozen=True)
class Drawn:
    """A field of a message, without its number.  The value ``ABSENT`` is not written."""

    name: str
    declared: str
    column: pa.DataType
    pairs: st.SearchStrategy[tuple[Any, Any]]
    inner: str = ""
    oneof: bool = False


@st.composite
def leaves(draw: st.DrawFn, depth: int, syntax: str) -> Leaf:
    if depth == 0 or draw(st.integers(0, 4)):
        return draw(st.sampled_from(LEAVES))
    name = f"M{next(_count)}"
    fields = draw(st.lists(drawn_fields(depth - 1, syntax), min_size=1, max_size=3))
    column = pa.struct([(field.name, field.column) for field in fields])
    return Leaf(name, column, rows_of(fields), inner=declared(name, fields, draw(numbers(len(fields)))))


@st.composite
def drawn_fields(draw: st.DrawFn, depth: int, syntax: str) -> Drawn:
    leaf, name = draw(leaves(depth, syntax)), f"f{next(_count)}"
    pairs = leaf.pairs
    match draw(st.sampled_from(["one", "optional", "list", "vector", "map", "oneof"])):
        case "list":
            packed = (
                ""
                if leaf.zero is None or leaf.proto in ("string", "bytes")
                else draw(st.sampled_from(["", " [packed = true]", " [packed = false]"]))
            )
            lists = st.lists(pairs, max_size=4).map(
                lambda items: ([value for value, _ in items] or ABSENT, [cell for _, cell in items])
            )
            return Drawn(name, f"repeated {leaf.proto} {name} = {{}}{packed}", pa.list_(leaf.column), lists, leaf.inner)
        case "vector":
            size = draw(st.integers(1, 3))
            values = st.lists(FLOATS, min_size=size, max_size=size).map(lambda items: (items, items))
            vectors = st.one_of(st.just((ABSENT, None)), values)
            return Drawn(name, f"repeated float {name} = {{}}", pa.list_(pa.float32(), size), vectors)
        case "map":
            maps = st.dictionaries(TEXT, pairs, max_size=3).map(
                lambda items: (
                    {key: value for key, (value, _) in items.items()} or ABSENT,
                    [(key, cell) for key, (_, cell) in items.items()],
                )
            )
            text = f"map<string, {leaf.proto}> {name} = {{}}"
            return Drawn(name, text, pa.map_(pa.string(), leaf.column), maps, leaf.inner)
        case "oneof":
            missing = st.one_of(st.just((ABSENT, None)), pairs)
            return Drawn(name, f"{leaf.proto} {name} = {{}}", leaf.column, missing, leaf.inner, oneof=True)
        case "one" if syntax == "proto3" and leaf.zero is not None:
            missing = st.one_of(st.just((ABSENT, leaf.zero)), pairs)
            return Drawn(name, f"{leaf.proto} {name} = {{}}", leaf.column, missing, leaf.inner)
        case "one" if syntax == "proto2":
            return Drawn(name, f"required {leaf.proto} {name} = {{}}", leaf.column, pairs, leaf.inner)
    missing = st.one_of(st.just((ABSENT, None)), pairs)
    return Drawn(name, f"optional {leaf.proto} {name} = {{}}", leaf.column, missing, leaf.inner)


def numbers(count: int) -> st.SearchStrategy[list[int]]:
    number = st.one_of(st.integers(2, 15), st.integers(16, 2047), st.integers(20_000, (1 << 29) - 1))
    return st.lists(number, min_size=count, max_size=count, unique=True)


def rows_of(fields: Sequence[Drawn]) -> st.SearchStrategy[tuple[Any, Any]]:
    """Pairs of the values of a message and of the struct.  Of several members of the oneof the last one is there."""

    def joined(pairs: tuple[tuple[Any, Any], ...]) -> tuple[Any, Any]:
        there = [place for place, (value, _) in enumerate(pairs) if fields[place].oneof and value is not ABSENT]
        values, cells = {}, {}
        for place, (field, (value, cell)) in enumerate(zip(fields, pairs, strict=True)):
            cleared = place in there[:-1]
            cells[field.name] = None if cleared else cell
            if value is not ABSENT and not cleared:
                values[field.name] = value
        return values, cells

    return st.tuples(*[field.pairs for field in fields]).map(joined)


def declared(name: str, fields: Sequence[Drawn], given: Sequence[int]) -> str:
    inner = "".join(field.inner for field in fields)
    texts = [f"{field.declared.format(number)};" for field, number in zip(fields, given, strict=True)]
    members = "".join(text for field, text in zip(fields, texts, strict=True) if field.oneof)
    plain_ = "".join(text for field, text in zip(fields, texts, strict=True) if not field.oneof)
    oneof = f"oneof choice {{ {members} }}" if members else ""
    return f"{inner} message {name} {{ {plain_} {oneof} }}\n"


@dataclass(frozen=True)
class Table:
    text: str
    columns: pa.Schema
    written: list[bytes]
    cells: list[dict[str, Any]]

    @property
    def decoder(self) -> ProtobufPayloads:
        return decoder(self.text, self.columns)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """A message, its columns, and rows that upb has written."""
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    fields = draw(st.lists(drawn_fields(2, syntax), min_size=1, max_size=5))
    label = "optional" if syntax == "proto2" else draw(st.sampled_from(["", "optional"]))
    key = Drawn("id", f"{label} int64 id = {{}}", pa.int64(), whole(64, signed=True).map(lambda value: (value, value)))
    every = [key, *fields]
    text = HEAD.format(syntax=syntax) + declared("Row", every, [1, *draw(numbers(len(fields)))])
    pairs = draw(st.lists(rows_of(every), min_size=1, max_size=8))
    of = message_class(text, "Row")
    columns = pa.schema([(field.name, field.column) for field in every])
    return Table(text, columns, [of(**values).SerializeToString() for values, _ in pairs], [row for _, row in pairs])


def message_class(text: str, name: str | None = None) -> Any:
    """upb's class of a message at the top, the last one without a name."""
    schema, number = WriterSchema("protobuf", text), 0
    file = message_of(schema, (0,)).file
    names = list(file.message_types_by_name)
    number = len(names) - 1 if name is None else names.index(name)
    return GetMessageClass(file.message_types_by_name[names[number]])


def decoder(
    text: str, columns: pa.Schema, naming: Naming = PLAIN, key: str = "id", path: tuple[int, ...] | None = None
) -> ProtobufPayloads:
    """The decoder of the last message at the top, or of the one at a path."""
    schema = WriterSchema("protobuf", text)
    if path is None:
        path = (len(message_of(schema, (0,)).file.message_types_by_name) - 1,)
    return ProtobufFormat(RowSchema(columns, (key,), (key,)), naming).decoder(schema, path)


def cells_of_upb(message: Any, columns: pa.Schema | pa.StructType) -> dict[str, Any]:
    """The cells that upb's message has, for columns with the names of its fields."""
    return {column.name: _cell(message, column.name, column.type) for column in columns}


def _cell(message: Any, name: str, column: pa.DataType) -> Any:
    field = message.DESCRIPTOR.fields_by_name[name]
    value = getattr(message, name)
    if pa.types.is_map(column):
        return [(key, _one(field.message_type.fields_by_name["value"], value[key], column.item_type)) for key in value]
    if pa.types.is_list(column):
        return [_one(field, item, column.value_type) for item in value]
    if pa.types.is_fixed_size_list(column):
        return list(value) or None
    return None if field.has_presence and not message.HasField(name) else _one(field, value, column)


def _one(field: Any, value: Any, column: pa.DataType) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    if field.message_type is None:
        return float(value) if pa.types.is_floating(column) else value
    if pa.types.is_struct(column):
        return cells_of_upb(value, column)
    if pa.types.is_temporal(column):
        per = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.unit]
        return value.seconds * per + value.nanos * per // 10**9
    return value.value


def passes_over_entries(message: Any) -> bool:
    """Whether upb passes over an entry of a map, since a number within it is unknown.  The specification passes over that
    number alone."""
    unknown: Any = UnknownFieldSet(message)
    if any(one.field_number in message.DESCRIPTOR.fields_by_number for one in unknown):
        return True
    inner = [
        one
        for field, value in message.ListFields()
        if field.message_type is not None
        for one in ([*value.values()] if hasattr(value, "values") else value if field.is_repeated else [value])
    ]
    return any(passes_over_entries(one) for one in inner if isinstance(one, Message))


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def tagged(number: int, wire: int, data: bytes = b"") -> bytes:
    """A field as it lies in a message.  ``data`` of wire type 2 gets its length."""
    return varint(number << 3 | wire) + (varint(len(data)) if wire == 2 else b"") + data
