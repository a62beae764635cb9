"""Which field fills which column: names, missing fields, unknown ones, patches, and schemas that cannot fill the columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.avro.decoder import AvroFormat, AvroPayloads
from lancewal_ingest.decode.framed.decoder import FramedDecoder
from lancewal_ingest.decode.framed.payloads import SchemaUnusable
from lancewal_ingest.decode.naming import Names, Naming, OtherName
from lancewal_ingest.decode.value_decoder import NO_SCHEMAS, DecodedValues
from lancewal_ingest.decode.weight import slot_bits
from tests.ingest.decode.avro.cases import decoder, logical, record, written
from tests.ingest.decode.framed.outcomes import decoded, outcomes

COLUMNS = pa.schema([("id", pa.int64()), ("s", pa.string()), ("n", pa.int32())])
IGNORING = Naming(Names({"id": None, "s": None}, ignores=True))
NAMES = Names({"id": None, "s": None, "n": None}, former={"old": "s", "older": "s"}, dropped=frozenset({"gone"}))


def rows_of(found: DecodedValues) -> list[dict[str, Any]]:
    (part,) = found.parts
    return [
        dict(zip(COLUMNS.names, cells, strict=True))
        for cells in zip(*(c.to_pylist() for c in part.columns), strict=True)
    ]


def unknown(of: AvroPayloads) -> str:
    """The first field for which every payload is refused."""
    (refused,) = decoded(of, [b""]).refused
    assert refused.kind == "unknown_column"
    return refused.found


def test_a_former_name_fills_its_column_and_counts() -> None:
    avro = record([("older", "string"), ("id", "long"), ("gone", "string")])
    datums = written(avro, [{"older": "a", "id": 1, "gone": "x"}, {"older": "b", "id": 2, "gone": ""}])
    found = decoded(decoder(avro, COLUMNS, Naming(NAMES)), datums)
    assert rows_of(found) == [{"id": 1, "s": "a", "n": None}, {"id": 2, "s": "b", "n": None}]
    assert found.other_names == {OtherName("former", "older"): 2, OtherName("dropped", "gone"): 2}


def test_a_schema_with_two_names_of_a_column_is_unusable() -> None:
    for names in (["s", "old"], ["old", "older"]):
        avro = record([("id", "long"), *((name, "string") for name in names)])
        with pytest.raises(SchemaUnusable, match=f"by one of its names. The field '{names[1]}'") as raised:
            decoder(avro, COLUMNS, Naming(NAMES))
        assert raised.value.kind == "duplicate_member"


def test_aliases_and_defaults_of_the_schema_change_nothing() -> None:
    avro = record([("id", "long")])
    avro["fields"] += [{"name": "t", "type": "string", "aliases": ["s"], "default": "d"}]
    assert unknown(decoder(avro, COLUMNS)) == "t"
    avro["fields"][1]["name"] = "s"
    (row,) = rows_of(decoded(decoder(avro, COLUMNS), [b"\2\0"]))
    assert row["s"] == ""


def test_an_unknown_field_refuses_every_payload_and_names_what_could_be_a_column() -> None:
    inner = {
        "type": "record",
        "name": "i",
        "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "string"]}],
    }
    avro = record(
        [
            ("id", "long"),
            ("a", ["null", logical("long", "timestamp-micros")]),
            ("b", logical("bytes", "decimal", precision=12, scale=3)),
            ("c", {"type": "array", "items": inner}),
            ("d", {"type": "map", "values": "int"}),
            ("e", ["int", "string"]),
            ("f", {"type": "enum", "name": "e", "symbols": ["A"]}),
            ("g", "null"),
        ]
    )
    of = decoder(avro, COLUMNS)
    found = decoded(of, [b"", b"\2"])
    assert [(one.kind, one.found) for one in found.refused] == [("unknown_column", "a")] * 2
    assert found.new_fields == {
        "a": pa.timestamp("us", "UTC"),
        "b": pa.decimal128(12, 3),
        "c": pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())])),
        "d": pa.map_(pa.string(), pa.int32()),
        "f": pa.string(),
    }
    for field in avro["fields"][1:]:
        assert unknown(decoder({**avro, "fields": [avro["fields"][0], field]}, COLUMNS)) == field["name"]


def test_new_columns_of_a_schema_have_a_limit_of_fields_together() -> None:
    wide = {"type": "record", "name": "w", "fields": [{"name": f"f{n}", "type": "int"} for n in range(4000)]}
    avro = record([("id", "long"), ("w0", wide), *((f"w{n}", "w") for n in range(1, 40)), ("last", "int")])
    found = decoded(decoder(avro, COLUMNS), [b"\2"])
    assert found.refused[0].kind == "unknown_column"
    assert list(found.new_fields) == [f"w{number}" for number in range(16)]


def test_an_unknown_member_of_a_struct_is_unknown_and_no_new_column() -> None:
    columns = pa.schema([("id", pa.int64()), ("st", pa.list_(pa.struct([("x", pa.int32())])))])
    inner = {
        "type": "record",
        "name": "i",
        "fields": [{"name": "x", "type": "int"}, {"name": "more", "type": "string"}],
    }
    avro = record([("id", "long"), ("st", {"type": "array", "items": inner})])
    of = decoder(avro, columns)
    assert unknown(of) == "st[].more"
    found = decoded(of, [b"\2\0"])
    assert (found.refused[0].kind, found.new_fields) == ("unknown_column", {})
    names = Names({"id": None, "st": Names({"x": None}, former={"more": "x"}, dropped=frozenset({"x1"}))})
    inner["fields"] = [{"name": "more", "type": "int"}, {"name": "x1", "type": "string"}]
    found = decoded(decoder(avro, columns, Naming(names)), written(avro, [{"id": 1, "st": [{"more": 5, "x1": "a"}]}]))
    assert found.parts[0].columns[1].to_pylist() == [[{"x": 5}]]
    assert found.other_names == {OtherName("former", "st[].more"): 1, OtherName("dropped", "st[].x1"): 1}


def test_fields_without_columns_are_passed_over_where_the_contract_says_so() -> None:
    avro = record([("x", "string"), ("id", "long"), ("y", {"type": "map", "values": "double"})])
    of = decoder(avro, pa.schema([("id", pa.int64()), ("s", pa.string())]), IGNORING)
    datums = written(avro, [{"x": "abc", "id": 3, "y": {"k": 0.5, "l": 1.5}}, {"x": "", "id": 4, "y": {}}])
    found = decoded(of, [*datums, b"\3a\2"])
    assert found.parts[0].columns[0].to_pylist() == [3, 4]
    assert found.other_names == {OtherName("unknown", "x"): 2, OtherName("unknown", "y"): 2}
    assert [(one.kind, one.message) for one in found.refused] == [
        ("malformed", "field 'x': expected a length of at most the bytes that remain")
    ]
    # Text that is passed over is not examined.
    assert decoded(of, [b"\2\xff\2\0"]).refused == []


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("boolean", b"\2"),
        ("int", b"\x80\x80\x80\x80\x10"),
        ("long", b"\xff" * 9 + b"\2"),
        ("float", b"\0\0\0"),
        ("string", b"\6x"),
        ({"type": "fixed", "name": "x", "size": 3}, b"\0\0"),
        ({"type": "enum", "name": "x", "symbols": ["A"]}, b"\1"),
        (["null", "int"], b"\4\0"),
        ({"type": "array", "items": "int"}, b"\2\2"),
        ({"type": "map", "values": "boolean"}, b"\2\2k\2\0"),
    ],
    ids=str,
)
def test_what_is_passed_over_is_checked_too(type_: Any, data: bytes) -> None:
    columns = pa.schema([("id", pa.int64()), ("s", pa.string())])
    of = decoder(record([("id", "long"), ("x", type_)]), columns, IGNORING)
    found = decoded(of, [b"\2" + data] * 2)
    assert [(one.kind, one.message[:9]) for one in found.refused] == [("malformed", "field 'x'")] * 2


def test_columns_have_other_names_in_the_table_and_in_messages() -> None:
    naming = Naming(fields={"s": "text", "id": "key"})
    of = decoder(record([("key", "long"), ("text", "string")]), COLUMNS, naming)
    found = decoded(of, [b"\2\2a", b"\2\3"])
    assert rows_of(found) == [{"id": 1, "s": "a", "n": None}]
    assert found.refused[0].message.startswith("column 's': ")
    of = decoder(record([("id", "long"), ("text", "string")]), COLUMNS, naming)
    assert unknown(of) == "id"


def test_columns_that_metadata_fills_are_in_no_value() -> None:
    naming = Naming(absent=frozenset({"n"}))
    (row,) = rows_of(decoded(decoder(record([("id", "long")]), COLUMNS, naming), [b"\2"]))
    assert row == {"id": 1, "s": None, "n": None}
    assert unknown(decoder(record([("id", "long"), ("n", "int")]), COLUMNS, naming)) == "n"


@pytest.mark.parametrize(
    ("type_", "column"),
    [
        ("string", pa.int64()),
        ("int", pa.string()),
        ("int", pa.date32()),
        ("int", pa.bool_()),
        ("long", pa.timestamp("us", "UTC")),
        ("long", pa.decimal128(38, 0)),
        ("double", pa.float32()),
        ("double", pa.int64()),
        ("float", pa.decimal128(38, 0)),
        ("bytes", pa.string()),
        ("string", pa.binary()),
        ("boolean", pa.int8()),
        (logical("long", "timestamp-micros"), pa.timestamp("us")),
        (logical("long", "local-timestamp-micros"), pa.timestamp("us", "UTC")),
        (logical("long", "timestamp-micros"), pa.date32()),
        (logical("long", "timestamp-micros"), pa.float64()),
        (logical("int", "date"), pa.timestamp("us")),
        (logical("bytes", "decimal", precision=5, scale=2), pa.decimal128(5, 1)),
        (logical("bytes", "decimal", precision=5, scale=2), pa.decimal128(5, 3)),
        (logical("bytes", "decimal", precision=50, scale=2), pa.decimal128(38, 2)),
        (logical("bytes", "decimal", precision=5, scale=2), pa.float64()),
        ({"type": "fixed", "name": "x", "size": 7}, pa.list_(pa.float32(), 2)),
        ({"type": "fixed", "name": "x", "size": 7}, pa.binary(8)),
        ({"type": "fixed", "name": "x", "size": 7}, pa.string()),
        ({"type": "enum", "name": "x", "symbols": ["A"]}, pa.int32()),
        ({"type": "array", "items": "string"}, pa.list_(pa.int32())),
        ({"type": "array", "items": "int"}, pa.int32()),
        ({"type": "array", "items": "double"}, pa.list_(pa.float32(), 2)),
        ({"type": "map", "values": "int"}, pa.struct([("a", pa.int32())])),
        ({"type": "map", "values": "int"}, pa.string()),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.string())),
        ({"type": "map", "values": "int"}, pa.map_(pa.int32(), pa.int32())),
        ({"type": "map", "values": "int"}, pa.list_(pa.int32())),
        ({"type": "record", "name": "x", "fields": [{"name": "a", "type": "string"}]}, pa.struct([("a", pa.int32())])),
        ({"type": "record", "name": "x", "fields": []}, pa.int64()),
        (["int", "string"], pa.int64()),
        (["null", "int", "long"], pa.int64()),
        (["null", "string"], pa.int64()),
        ([{"type": "fixed", "name": f"{space}.x", "size": 1} for space in "ab"], pa.struct([("x", pa.binary())])),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_does_not_fit_makes_the_schema_unusable(type_: Any, column: pa.DataType) -> None:
    with pytest.raises(SchemaUnusable, match=r"^column 'v") as raised:
        decoder(record([("id", "long"), ("v", type_)]), pa.schema([("id", pa.int64()), ("v", column)]))
    assert len(str(raised.value)) < 500
    assert raised.value.kind == "type"


def test_an_unknown_field_decides_before_a_type_or_a_missing_key_does() -> None:
    """A new column may come for it; the schema would have to be read again otherwise."""
    for fields in ([("id", "string"), ("more", "int")], [("more", "int")]):
        of = decoder(record(fields), COLUMNS)
        assert unknown(of) == "more"
        assert [one.kind for one in decoded(of, [b""]).refused] == ["unknown_column"]


def test_a_schema_that_is_no_record_is_unusable() -> None:
    with pytest.raises(
        SchemaUnusable, match="expected an Avro record, whose fields become columns; the schema is union of null, long"
    ):
        decoder('["null", "long"]', COLUMNS)


def test_a_schema_without_a_key_is_unusable() -> None:
    with pytest.raises(
        SchemaUnusable, match="column 'id': expected a field for it, because it is in the primary key"
    ) as raised:
        decoder(record([("s", "string")]), COLUMNS)
    assert raised.value.kind == "missing_key"


def test_a_null_key_is_missing_and_a_key_out_of_range_is_not() -> None:
    of = decoder(record([("n", ["null", "long"]), ("id", "long")]), COLUMNS, key="n")
    found = decoded(of, [b"\0\2", b"\2\2\2", b"\2" + b"\x80" * 6 + b"\1\2"])
    assert {one.place: one.kind for one in found.refused} == {0: "missing_key", 2: "range"}


def test_what_is_no_avro_is_unusable() -> None:
    of = AvroFormat(RowSchema(COLUMNS, ("id",), ("id",)), Naming())
    for schema in (WriterSchema("avro", "{"), WriterSchema("protobuf", json.dumps(record([("id", "long")])))):
        with pytest.raises(SchemaUnusable):
            of.decoder(schema, ())


def test_a_default_that_is_no_value_of_its_column_is_an_error_of_the_contract() -> None:
    with pytest.raises(InvalidSchema, match="its default"):
        AvroFormat(RowSchema(COLUMNS, ("id",), ("id",)), Naming(defaults={"n": '"x"'}))


def test_a_decoder_names_the_columns_by_which_values_call_them() -> None:
    naming = Naming(fields={"s": "text"}, absent=frozenset({"n"}))
    rows = RowSchema(COLUMNS, ("id",), ("id",))
    of = AvroFormat(rows, naming)
    assert list(FramedDecoder(of, rows, naming, NO_SCHEMAS).names) == ["id", "text"]
    schema = WriterSchema("avro", json.dumps(record([("text", "string"), ("id", "long")])))
    assert of.decoder(schema, ()).fills == {"id", "text"}


def test_a_missing_field_is_null_or_the_default_of_an_upsert() -> None:
    naming = Naming(defaults={"s": '"d"', "n": "7"})
    of = decoder(record([("id", "long"), ("n", ["null", "int"])]), COLUMNS, naming)
    found = decoded(of, [b"\2\0", b"\4\0", b"\6\2\2"], [Op.UPSERT, Op.PATCH, Op.DELETE])
    assert rows_of(found) == [
        {"id": 1, "s": "d", "n": None},
        {"id": 2, "s": None, "n": None},
        {"id": 3, "s": None, "n": 1},
    ]
    assert found.parts[0].ops.to_pylist() == [Op.UPSERT, Op.PATCH, Op.DELETE]
    assert found.parts[0].present.to_pylist() == [None] * 3
    assert not of.tells_presence


ARRAY = {"type": "array", "items": "float"}
PAIR = {"type": "record", "name": "p", "fields": [{"name": "x", "type": "int"}]}


@pytest.mark.parametrize(
    ("type_", "column", "data"),
    [
        ("boolean", pa.bool_(), b"\1"),
        ("string", pa.string(), b"\2x"),
        ("string", pa.large_string(), b"\2x"),
        ("bytes", pa.large_binary(), b"\2x"),
        (logical("string", "uuid"), pa.uuid(), b"\x48c3a1f5d0-0000-4abc-8def-0123456789ab"),
        ({"type": "fixed", "name": "x", "size": 2}, pa.binary(2), b"xy"),
        (logical("int", "time-millis"), pa.time32("ms"), b"\2"),
        (logical("bytes", "decimal", precision=2), pa.decimal128(3, 1), b"\2\1"),
        (ARRAY, pa.list_(pa.float32()), b"\2\0\0\0\0\0"),
        (ARRAY, pa.list_(pa.float32(), 1), b"\2\0\0\0\0\0"),
        ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.int8()), b"\2\2k\2\0"),
        (PAIR, pa.struct([("x", pa.int32())]), b"\2"),
        ({"type": "array", "items": PAIR}, pa.list_(pa.struct([("x", pa.int32())])), b"\2\2\0"),
    ],
    ids=str,
)
def test_columns_of_all_types_are_null_where_a_row_has_them_not(type_: Any, column: pa.DataType, data: bytes) -> None:
    """A null, a schema without it, and a bad neighbour."""
    columns = pa.schema([("id", pa.int64()), ("v", column)])
    of = decoder(record([("id", "long"), ("v", ["null", type_])]), columns)
    found = decoded(of, [b"\2\2" + data, b"\4\1", b"\6\0"])
    assert [(one.place, one.kind) for one in found.refused] == [(1, "malformed")]
    assert [cell is None for cell in found.parts[0].columns[1].to_pylist()] == [False, True]
    found = decoded(decoder(record([("id", "long")]), columns), [b"\2", b"\4"])
    assert found.parts[0].columns[1].to_pylist() == [None, None]
    assert found.parts[0].columns[1].type == column


def _growth_case() -> tuple[AvroPayloads, pa.Schema, list[bytes]]:
    inner = {
        "type": "record",
        "name": "i",
        "fields": [{"name": "e", "type": ["null", "E"]}, {"name": "t", "type": ["null", "string"]}],
    }
    enum = {"type": "enum", "name": "E", "symbols": ["LONG_NAME_OF_A_SYMBOL", "B"]}
    vectors = {"type": "array", "items": ["null", {"type": "fixed", "name": "V", "size": 64}]}
    avro = record(
        [("id", "long"), ("e", enum), ("l", {"type": "array", "items": inner}), ("v", vectors), ("b", "bytes")]
    )
    column = pa.list_(pa.struct([("e", pa.string()), ("t", pa.string())]))
    columns = pa.schema(
        [("id", pa.int64()), ("e", pa.string()), ("l", column), ("v", pa.list_(pa.list_(pa.float64(), 8))), ("b", pa.binary()),
         ("s", pa.string())]
    )  # fmt: skip
    of = decoder(avro, columns, Naming(defaults={"s": '"a default"'}))
    first = "LONG_NAME_OF_A_SYMBOL"
    values = [
        {"id": 1, "e": first, "l": [{"e": first, "t": None}] * count, "v": [None] * count, "b": b"x" * count}
        for count in (0, 1, 5, 60, 300)
    ]
    return of, columns, written(avro, values)


@pytest.mark.parametrize(
    ("type_", "column", "growth"),
    [
        ("long", pa.int64(), (0, 0)),
        ("string", pa.string(), (1, 0)),
        ({"type": "fixed", "name": "x", "size": 4}, pa.binary(), (1, 0)),
        ({"type": "fixed", "name": "x", "size": 4}, pa.list_(pa.uint8(), 4), (0, 0)),
        ({"type": "enum", "name": "x", "symbols": ["A", "LONGER"]}, pa.string(), (0, 6)),
        ({"type": "array", "items": "long"}, pa.list_(pa.int64()), (9, 0)),
        ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64()), (14, 0)),
        (
            {"type": "array", "items": {"type": "enum", "name": "x", "symbols": ["LONGER"]}},
            pa.list_(pa.string()),
            (11, 0),
        ),
        (["int", "string"], pa.struct([("int", pa.int32()), ("string", pa.string())]), (1, 0)),
    ],
    ids=str,
)
def test_growth_counts_what_has_no_fixed_size(type_: Any, column: pa.DataType, growth: tuple[int, int]) -> None:
    columns = pa.schema([("id", pa.int64()), ("v", column), ("s", pa.string())])
    of = decoder(record([("id", "long"), ("v", type_)]), columns, Naming(defaults={"s": '"default"'}))
    default = pa.array(["default"]).nbytes
    assert of.growth == (growth[0], growth[1] + default)


def test_no_row_takes_more_than_its_payload_may_grow_to() -> None:
    of, columns, datums = _growth_case()
    fixed = -(-sum(slot_bits(type_) for type_ in columns.types) // 8)
    factor, each = of.growth
    for datum in datums:
        (part,) = decoded(of, [datum]).parts
        # A batch of one row shows that Arrow keeps an offset more than it has values.
        took = pa.RecordBatch.from_arrays(list(part.columns), schema=columns).nbytes
        assert took <= fixed + factor * len(datum) + each + 4 * 8
    assert factor < 200


def test_outcomes_do_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    of, _, datums = _growth_case()
    values = [value for datum in datums for value in (datum, datum[:-1], datum + b"\0")]
    together = outcomes(decoded(of, values))
    for rows, nbytes in ((1, 1), (2, 1 << 20), (7, 300)):
        monkeypatch.setattr("lancewal_ingest.decode.framed.typed.CHUNK_ROWS", rows)
        monkeypatch.setattr("lancewal_ingest.decode.framed.typed.CHUNK_BYTES", nbytes)
        monkeypatch.setattr("lancewal_ingest.decode.framed.typed.SINGLY_BYTES", nbytes)
        assert outcomes(decoded(of, values)) == together
