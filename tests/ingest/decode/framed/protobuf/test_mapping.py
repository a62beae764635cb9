"""Fields of a message and the columns of a contract: types, growth, new columns.  Names are those of every format."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.names.ids import SchemaKey
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.wal.writer_schemas import StoredSchema, WriterSchema, stored_schema
from lancewal_ingest.decode.framed.cursors import Cursors
from lancewal_ingest.decode.framed.decoder import FramedDecoder
from lancewal_ingest.decode.framed.payloads import SchemaUnusable
from lancewal_ingest.decode.framed.protobuf.decoder import ProtobufFormat
from lancewal_ingest.decode.naming import Names, Naming, OtherName
from lancewal_ingest.decode.weight import slot_bits
from lancewal_ingest.formats import value_decoder
from tests.ingest.decode.framed.outcomes import by_one, decoded, outcomes
from tests.ingest.decode.framed.protobuf.cases import HEAD, decoder, tagged, varint

ID = tagged(1, 0, b"\7")
INNER = "message In { optional int32 a = 1; optional string s = 2; } message Tree { Tree t = 1; }"


def row(fields: str) -> str:
    return HEAD.format(syntax="proto3") + f"{INNER} message Row {{ int64 id = 1; {fields} }}"


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("int32 v = 2;", pa.string()), ("int32 v = 2;", pa.bool_()), ("int64 v = 2;", pa.timestamp("us", "UTC")),
        ("int32 v = 2;", pa.date32()), ("int64 v = 2;", pa.decimal128(10, 2)), ("bool v = 2;", pa.int8()),
        ("double v = 2;", pa.float32()), ("float v = 2;", pa.int64()), ("string v = 2;", pa.int64()),
        ("string v = 2;", pa.binary()), ("bytes v = 2;", pa.string()), ("Kind v = 2;", pa.int32()),
        ("In v = 2;", pa.string()), ("In v = 2;", pa.map_(pa.string(), pa.int32())), ("int32 v = 2;", pa.list_(pa.int32())),
        ("repeated int32 v = 2;", pa.int32()), ("repeated string v = 2;", pa.list_(pa.int32())),
        ("repeated double v = 2;", pa.list_(pa.float32(), 2)), ("map<int32, int32> v = 2;", pa.map_(pa.string(), pa.int32())),
        ("map<string, int32> v = 2;", pa.list_(pa.struct([("key", pa.string()), ("value", pa.int32())]))),
        ("google.protobuf.Timestamp v = 2;", pa.timestamp("us")), ("google.protobuf.Timestamp v = 2;", pa.int64()),
        ("google.protobuf.Duration v = 2;", pa.timestamp("us", "UTC")), ("google.protobuf.Int64Value v = 2;", pa.string()),
        ("In v = 2;", pa.struct([("a", pa.string()), ("s", pa.string())])),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_does_not_fit_makes_the_schema_unusable(field: str, column: pa.DataType) -> None:
    with pytest.raises(SchemaUnusable, match=r"column 'v(\.a)?': expected a type that fits") as caught:
        decoder(row(field), pa.schema([("id", pa.int64()), ("v", column)]))
    assert caught.value.kind == "type"


def test_a_group_is_no_column_and_is_passed_over() -> None:
    text = 'syntax = "proto2"; message Row { optional int64 id = 1; optional group G = 2 { optional int32 a = 1; } }'
    with pytest.raises(SchemaUnusable, match=r"the schema has group Row\.G"):
        decoder(text, pa.schema([("id", pa.int64()), ("g", pa.struct([("a", pa.int32())]))]))
    of = decoder(text, pa.schema([("id", pa.int64())]), Naming(Names({"id": None}, ignores=True)))
    found = decoded(of, [ID + tagged(2, 3) + tagged(1, 0, b"\1") + tagged(2, 4), ID, ID + tagged(2, 2)])
    assert [(one.place, one.kind) for one in found.refused] == [(2, "malformed")]
    assert found.other_names == {OtherName("unknown", "g"): 2}


def test_an_unknown_field_refuses_every_payload_and_names_what_could_be_a_column() -> None:
    text = row(
        "optional int32 i = 2; uint64 u = 3; Kind k = 4; repeated In many = 5; map<string, double> m = 6; Tree t = 7; "
        "google.protobuf.Timestamp at = 8; google.protobuf.Duration d = 9; google.protobuf.BytesValue w = 10; "
        "map<int32, int32> n = 11; sint32 s = 12; fixed32 f = 13; float g = 14; bool b = 15; string x = 16;"
    )
    of = decoder(text, pa.schema([("id", pa.int64())]))
    found = decoded(of, [ID, b"\xff"])
    assert {one.kind for one in found.refused} == {"unknown_column"}
    assert found.refused[0].found == "i"
    assert found.new_fields == {
        "i": pa.int32(), "u": pa.uint64(), "k": pa.string(), "m": pa.map_(pa.string(), pa.float64()),
        "many": pa.list_(pa.struct([("a", pa.int32()), ("s", pa.string())])), "at": pa.timestamp("ns", "UTC"),
        "d": pa.duration("ns"), "w": pa.binary(), "s": pa.int32(), "f": pa.uint32(), "g": pa.float32(), "b": pa.bool_(),
        "x": pa.string(),
    }  # fmt: skip
    for name, type_ in found.new_fields.items():
        assert name in decoder(text, pa.schema([("id", pa.int64()), (name, type_)]), ignoring(name)).fills


def ignoring(name: str) -> Naming:
    return Naming(Names({"id": None, name: None if name != "many" else Names({"a": None, "s": None})}, ignores=True))


def test_new_columns_of_a_schema_have_a_limit_of_fields_together() -> None:
    wide = f"message Wide {{ {''.join(f'int32 f{number} = {number};' for number in range(1, 4000))} }}"
    text = row("".join(f"Wide w{number} = {number};" for number in range(2, 40)) + f"int32 last = 40; {wide}")
    found = decoded(decoder(text, pa.schema([("id", pa.int64())])), [ID])
    assert {one.kind for one in found.refused} == {"unknown_column"}
    assert list(found.new_fields) == [f"w{number}" for number in range(2, 18)]


def test_former_and_present_names_and_those_of_the_table() -> None:
    columns = pa.schema([("id", pa.int64()), ("new", pa.int32())])
    naming = Naming(Names({"id": None, "new": None}, former={"old": "new"}))
    of = decoder(row("int32 old = 2;"), columns, naming)
    found = decoded(of, [ID + tagged(2, 0, b"\5")])
    assert found.parts[0].columns[1].to_pylist() == [5]
    assert found.other_names == {OtherName("former", "old"): 1}
    with pytest.raises(SchemaUnusable, match="field 'old' has another name") as caught:
        decoder(row("int32 old = 2; int32 new = 3;"), columns, naming)
    assert caught.value.kind == "duplicate_member"


def test_a_schema_without_a_key_is_unusable() -> None:
    text = HEAD.format(syntax="proto3") + "message Row { int32 v = 1; }"
    with pytest.raises(SchemaUnusable, match="column 'id': expected a field for it") as caught:
        decoder(text, pa.schema([("id", pa.int64()), ("v", pa.int32())]))
    assert caught.value.kind == "missing_key"


def test_a_message_within_another_fills_the_columns() -> None:
    text = 'syntax = "proto3"; message A { } message B { message C { int64 id = 1; } }'
    of = decoder(text, pa.schema([("id", pa.int64())]), path=(1, 0))
    assert decoded(of, [ID]).parts[0].columns[0].to_pylist() == [7]


@pytest.mark.parametrize(
    ("field", "column", "growth"),
    [
        ("int32 v = 2;", pa.int32(), (0, 0)),
        ("string v = 2;", pa.string(), (1, 0)),
        ("bytes v = 2;", pa.binary(4), (0, 0)),
        ("Kind v = 2;", pa.string(), (0, 8)),
        ("repeated int32 v = 2;", pa.list_(pa.int64()), (9, 0)),
        ("repeated bool v = 2;", pa.list_(pa.bool_()), (1, 0)),
        ("repeated Kind v = 2;", pa.list_(pa.string()), (13, 0)),
        ("repeated float v = 2;", pa.list_(pa.float32(), 2), (0, 0)),
    ],
    ids=str,
)
def test_growth_counts_what_has_no_fixed_size(field: str, column: pa.DataType, growth: tuple[int, int]) -> None:
    assert decoder(row(field), pa.schema([("id", pa.int64()), ("v", column)])).growth == growth


@pytest.mark.parametrize(
    ("field", "column", "data"),
    [
        ("repeated Kind v = 2;", pa.list_(pa.string()), tagged(2, 2, varint(-1) * 50)),
        ("repeated Kind v = 2;", pa.list_(pa.string()), tagged(2, 2, b"\7" * 500)),
        ("repeated int32 v = 2;", pa.list_(pa.int64()), tagged(2, 2, b"\7" * 500)),
        ("repeated bool v = 2;", pa.list_(pa.bool_()), tagged(2, 2, b"\1" * 500)),
        ("repeated In v = 2;", pa.list_(pa.struct([("a", pa.int32()), ("s", pa.string())])), tagged(2, 2) * 200),
        ("map<string, Kind> v = 2;", pa.map_(pa.string(), pa.string()), tagged(2, 2)),
        ("repeated bytes v = 2;", pa.list_(pa.list_(pa.float64(), 1)), tagged(2, 2, b"x" * 8) * 20),
        ("Kind v = 2;", pa.string(), b""),
        ("string v = 2;", pa.string(), tagged(2, 2, b"x" * 500)),
    ],
    ids=lambda value: str(value)[:40],
)
def test_no_row_takes_more_than_its_payload_may_grow_to(field: str, column: pa.DataType, data: bytes) -> None:
    columns = pa.schema([("id", pa.int64()), ("v", column)])
    of = decoder(row(field), columns)
    (part,) = decoded(of, [ID + data]).parts
    fixed = -(-sum(slot_bits(one.type) for one in columns) // 8)
    took = pa.RecordBatch.from_arrays(list(part.columns), schema=columns).nbytes
    assert took <= fixed + of.growth[0] * len(ID + data) + of.growth[1] + 24  # offsets are one more than values


def test_a_default_that_is_no_value_of_its_column_is_an_error_of_the_contract() -> None:
    rows = RowSchema(pa.schema([("id", pa.int64()), ("v", pa.int8())]), ("id",), ("id",))
    with pytest.raises(Exception, match="its default '300' is not a value"):
        ProtobufFormat(rows, Naming(defaults={"v": "300"}))


class Known:
    """``Schemas`` with one schema."""

    asked_first = False

    def __init__(self, text: str) -> None:
        self._versions = (stored_schema(WriterSchema("protobuf", text), "a"),)

    def known(self, key: SchemaKey) -> tuple[StoredSchema, ...]:
        return self._versions

    def read(self, key: SchemaKey, at_least: int = 1) -> tuple[StoredSchema, ...]:
        return self._versions


def framed(path: bytes, data: bytes) -> bytes:
    return b"\0\0\0\0\7" + path + data


def test_frames_name_the_message() -> None:
    text = 'syntax = "proto3"; message A { int64 id = 1; } message B { message C { int64 id = 2; } int64 id = 3; }'
    rows = RowSchema(pa.schema([("id", pa.int64())]), ("id",), ("id",))
    of = value_decoder("protobuf", rows, schemas=Known(text))
    values = [
        framed(b"\0", tagged(1, 0, b"\1")),
        framed(b"\2\0", tagged(1, 0, b"\2")),
        framed(b"\2\2", tagged(3, 0, b"\3")),
        framed(b"\4\2\0", tagged(2, 0, b"\4")),
        framed(b"\2\4", b""),
        framed(b"", b""),
    ]
    found = of.decode(values, np.zeros(len(values), np.uint8))
    cells = {int(p): v for part in found.parts for p, v in zip(part.indexes, part.columns[0].to_pylist(), strict=True)}
    assert cells == {0: 1, 1: 2, 2: 3, 3: 4}
    assert {one.place: one.kind for one in found.refused} == {4: "unusable_schema", 5: "wrong_format"}


def test_paths_that_values_name_leave_little_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lancewal_ingest.decode.framed.decoder._MADE_MAX", 3)
    rows = RowSchema(pa.schema([("id", pa.int64())]), ("id",), ("id",))
    of = value_decoder("protobuf", rows, schemas=Known('syntax = "proto3"; message A { int64 id = 1; }'))
    values = [framed(b"\2" + varint(2 * number), ID) for number in range(20)]
    for _ in range(2):
        found = of.decode(values, np.zeros(len(values), np.uint8))
        assert [part.columns[0].to_pylist() for part in found.parts] == [[7]]
        assert len(found.refused) == 19
    assert isinstance(of, FramedDecoder)
    assert len(of._made) <= 3


@pytest.mark.parametrize(
    ("fields", "header", "present", "cells"),
    [
        ("optional int32 v = 2; optional string w = 3;", None, b"\3", (7, 5, None)),
        ("optional int32 v = 2; optional string w = 3;", b"v,w", b"\7", (7, 5, None)),
        ("optional int32 v = 2; optional string w = 3;", b"w", b"\5", (7, None, None)),
        ("int32 v = 2; optional string w = 3;", b"v", b"\3", (7, 5, None)),
        ("int32 v = 2; optional string w = 3;", None, None, "patch_fields"),
        ("optional int32 v = 2; optional string w = 3;", b"x", None, "patch_fields"),
    ],
    ids=str,
)
def test_the_header_of_a_patch_goes_before_presence(
    fields: str, header: bytes | None, present: bytes | None, cells: object
) -> None:
    columns = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("w", pa.string())])
    text = f'syntax = "proto3"; message Row {{ int64 id = 1; {fields} }}'
    of = value_decoder("protobuf", RowSchema(columns, ("id",), ("id",)), schemas=Known(text))
    value = framed(b"\0", ID + tagged(2, 0, b"\5"))
    headers = {"lancewal.fields": pa.array([header], pa.binary())}
    found = of.decode([value], np.array([Op.PATCH], np.uint8), headers)
    if isinstance(cells, str):
        assert [one.kind for one in found.refused] == [cells]
        return
    (part,) = found.parts
    assert part.present.to_pylist() == [present]
    assert tuple(column.to_pylist()[0] for column in part.columns) == cells


def test_outcomes_do_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    of = decoder(row("repeated string v = 2;"), pa.schema([("id", pa.int64()), ("v", pa.list_(pa.string()))]))
    payloads = [ID + tagged(2, 2, b"x" * (place % 7)) * (place % 5) for place in range(200)]
    payloads[50:60] = [b"\xff"] * 10
    expected = outcomes(decoded(of, payloads))
    assert by_one(of, payloads) == expected
    for rows, nbytes in ((1, 1), (3, 1000), (1000, 10)):
        monkeypatch.setattr("lancewal_ingest.decode.framed.typed.CHUNK_ROWS", rows)
        monkeypatch.setattr("lancewal_ingest.decode.framed.typed.CHUNK_BYTES", nbytes)
        monkeypatch.setattr("lancewal_ingest.decode.framed.typed.SINGLY_BYTES", nbytes)
        assert outcomes(decoded(of, payloads)) == expected
    monkeypatch.undo()
    for steps in (0, 1, 2, 5, 50):
        monkeypatch.setattr(of, "steps_max", steps)
        assert outcomes(decoded(of, payloads)) == expected


def test_lists_in_lists_are_the_same_rows_however_much_is_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = "message L { repeated In l = 1; int32 n = 2; }"
    struct = pa.struct([("l", pa.list_(pa.struct([("a", pa.int32()), ("s", pa.string())]))), ("n", pa.int32())])
    of = decoder(
        row(f"{inner} repeated L v = 2; string w = 3;"),
        pa.schema([("id", pa.int64()), ("v", pa.list_(struct)), ("w", pa.string())]),
    )
    items = [tagged(1, 2, tagged(1, 0, b"\1")) * count + tagged(2, 0, b"\2") for count in range(4)]
    payloads = [ID + b"".join(tagged(2, 2, one) for one in items[:count]) + tagged(3, 2, b"x") for count in range(5)]
    expected = by_one(of, payloads)
    assert len({*expected.values()}) == 5
    for steps in (0, 3, 6, 9, 20, 1000):
        monkeypatch.setattr(of, "steps_max", steps)
        assert outcomes(decoded(of, payloads)) == expected


def test_runs_of_numbers_in_lists_do_not_read_their_neighbours_again(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.struct([("n", pa.list_(pa.int64()))])))])
    of = decoder(row("message L { repeated int64 n = 1; } repeated L v = 2;"), columns)
    payloads = [ID + tagged(2, 2, tagged(1, 2, bytes(range(count)))) * count for count in range(1, 60)]
    asked: list[int] = []

    def lasts(cursors: Cursors) -> np.ndarray:
        found = list_of_lasts(cursors)
        asked.append(id(found))
        return found

    list_of_lasts = Cursors.lasts
    monkeypatch.setattr(Cursors, "lasts", lasts)
    assert outcomes(decoded(of, payloads)) == by_one(of, payloads)
    assert len(asked) > 100
    assert len({*asked}) == 1


def test_a_refusal_names_the_column_and_what_it_expects() -> None:
    of = decoder(row("int32 v = 2;"), pa.schema([("id", pa.int64()), ("v", pa.int8())]))
    found = decoded(of, [ID + tagged(2, 0, varint(300)), ID + tagged(2, 0, varint(2**40))])
    assert [(one.kind, one.message) for one in found.refused] == [
        ("range", "column 'v': expected a number from -128 to 127"),
        ("malformed", "column 'v': expected an integer of 32 bits"),
    ]


def test_messages_of_another_name_are_no_rows_if_the_contract_names_one() -> None:
    text = 'syntax = "proto3"; package shop; message A { int64 id = 1; message B { int64 id = 1; } }'
    columns = pa.schema([("id", pa.int64())])
    naming = Naming(record="shop.A.B")
    assert decoded(decoder(text, columns, naming, path=(0, 0)), [ID]).refused == []
    with pytest.raises(SchemaUnusable, match="expected a record of the name") as caught:
        decoder(text, columns, naming, path=(0,))
    assert caught.value.kind == "other_record"
