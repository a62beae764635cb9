"""Texts of ``.proto`` files give the descriptors that protoc gives, and a path its message."""

from __future__ import annotations

import base64
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.type import date_pb2, latlng_pb2, money_pb2, timeofday_pb2  # type: ignore[import-untyped]  # has no types
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.names.proto import lance_field_pb2, mem_wal_pb2, rowids_pb2, state_page_pb2, wal_segment_pb2
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.decode.framed.payloads import SchemaUnusable
from lancewal_ingest.decode.framed.protobuf import schema as schemas
from lancewal_ingest.decode.framed.protobuf.proto_text import NESTING_MAX, parse_proto
from lancewal_ingest.decode.framed.protobuf.schema import message_of
from tests.ingest.decode.framed.outcomes import decoded
from tests.ingest.decode.framed.protobuf.cases import Table, decoder, tables
from tests.support.fuzzing import damaged, fuzz

PROTOS = Path(lance_field_pb2.__file__).parent
BY_PROTOC = {
    "lance_field": lance_field_pb2, "mem_wal": mem_wal_pb2, "rowids": rowids_pb2, "state_page": state_page_pb2,
    "wal_segment": wal_segment_pb2,
}  # fmt: skip
EVERYTHING = r"""
/* A file with each part
   of the language. */
syntax = "proto2"; // the older one
package a.b.c;
import public "other.proto";
import weak 'more.proto';
option java_package = "x"; option (custom).name = { a: 1 b: [ 2, 3 ] c { d: "}" } };
option optimize_for = SPEED;
message Row {
  option deprecated = true;
  option (my.option) = -1.5e3;
  reserved 5, 10 to 20, 1000 to max; reserved "x", "y";
  extensions 100 to 199 [verification = UNVERIFIED];
  required int64 id = 1 [deprecated = true, (x.y).z = "a" 'b', json_name = "ID"];
  optional string message = 2 [default = "\x41\101\n\"\u00fc"];
  repeated .a.b.c.Row.Inner inner = 0x3;
  optional group Part = 4 { optional int32 n = 1; }
  map < string , Inner > by_name = 030;
  message Inner { optional Kind kind = 1 [default = B]; optional Inner again = 2; }
  enum Kind { option allow_alias = true; A = 0; B = -1 [deprecated = true]; C = -1; reserved 7; option = 3; }
  oneof choice { option (z) = 1; double d = 6; Other o = 7; group G = 8 { } }
  optional int32 reserved = 31; optional int32 option = 32; optional int32 oneof = 33;
  optional float enum = 34 [default = -inf]; repeated int32 packed = 35 [packed = true];
  extend Row { optional int32 more = 100; }
  ;
}
extend Row { optional int32 extra = 101; }
service S { rpc Call (Row) returns (stream Row) { option (x) = { get: "/v1" }; } }
message Other { }
;
"""
OTHER = ("other.proto", 'syntax = "proto3"; message Unused { }')


def linked(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor with the full names of types, and without what protoc adds and no reader needs."""
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = descriptor_pb2.FileDescriptorProto()
    pool.FindFileByName(file.name).CopyToProto(found)
    found.ClearField("options")
    messages = list(found.message_type)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        for field in message.field:
            field.ClearField("json_name")
            if not field.options.packed:
                field.ClearField("options")
    return found


@pytest.mark.parametrize("name", BY_PROTOC)
def test_a_text_gives_the_descriptor_of_protoc(name: str) -> None:
    by_protoc = descriptor_pb2.FileDescriptorProto()
    BY_PROTOC[name].DESCRIPTOR.CopyToProto(by_protoc)
    text = (PROTOS / f"{name}.proto").read_text()
    assert linked(parse_proto(text, by_protoc.name)) == linked(by_protoc)


@pytest.mark.parametrize("known", [date_pb2, timeofday_pb2, money_pb2, latlng_pb2], ids=lambda one: one.__name__)
def test_imports_that_registries_have_built_in_are_those_of_google(known: Any) -> None:
    by_protoc = descriptor_pb2.FileDescriptorProto()
    known.DESCRIPTOR.CopyToProto(by_protoc)
    assert linked(parse_proto(schemas._BUILT_IN[by_protoc.name], by_protoc.name)) == linked(by_protoc)


def test_each_part_of_the_language_is_read() -> None:
    row: Any = message_of(WriterSchema("protobuf", EVERYTHING, (OTHER,)), (0,))
    assert row.full_name == "a.b.c.Row"
    assert [(one.name, one.number) for one in row.fields] == [
        ("id", 1), ("message", 2), ("inner", 3), ("part", 4), ("by_name", 24), ("d", 6), ("o", 7), ("g", 8),
        ("reserved", 31), ("option", 32), ("oneof", 33), ("enum", 34), ("packed", 35),
    ]  # fmt: skip
    assert [one.name for one in row.nested_types] == ["Part", "ByNameEntry", "Inner", "G"]
    kind = row.enum_types_by_name["Kind"]
    assert [(one.name, one.number) for one in kind.values] == [("A", 0), ("B", -1), ("C", -1), ("option", 3)]
    assert [one.name for one in row.oneofs[0].fields] == ["d", "o", "g"]
    assert row.fields_by_name["id"].is_required
    assert row.fields_by_name["by_name"].message_type.fields_by_name["value"].message_type.name == "Inner"


def test_a_descriptor_in_base64_gives_what_its_text_gives() -> None:
    text = (
        'syntax = "proto3"; import "o.proto"; message Row { int64 id = 1; o.Part part = 2; map<string, int32> m = 3; }'
    )
    other = 'syntax = "proto3"; package o; message Part { string s = 1; }'
    encoded = [
        base64.standard_b64encode(parse_proto(one, "any.proto").SerializeToString()).decode() for one in (text, other)
    ]
    columns = pa.schema(
        [("id", pa.int64()), ("part", pa.struct([("s", pa.string())])), ("m", pa.map_(pa.string(), pa.int32()))]
    )
    for main in (text, encoded[0]):
        for reference in (other, encoded[1]):
            row: Any = message_of(WriterSchema("protobuf", main, (("o.proto", reference),)), (0,))
            assert row.fields_by_name["part"].message_type.full_name == "o.Part"
    assert decoder(text.replace("o.Part part = 2;", "").replace('import "o.proto";', ""), columns).fills == {"id", "m"}


def test_a_path_names_a_message() -> None:
    text = 'syntax = "proto3"; message A { message B { message C { } } message D { } } message E { }'
    found = {
        path: message_of(WriterSchema("protobuf", text), path).full_name for path in [(0,), (0, 0, 0), (0, 1), (1,)]
    }
    assert found == {(0,): "A", (0, 0, 0): "A.B.C", (0, 1): "A.D", (1,): "E"}
    for path in [(2,), (0, 2), (1, 0), (0, 0, 0, 0)]:
        with pytest.raises(SchemaUnusable, match="no message at the path"):
            message_of(WriterSchema("protobuf", text), path)


def test_a_path_that_means_two_messages_is_refused() -> None:
    """Python and Go count the messages of maps, and Java counts the ones that the text declares."""
    text = 'syntax = "proto3"; message A { map<string, int32> m = 1; message B { } message C { } }'
    assert message_of(WriterSchema("protobuf", text), (0, 0)).name == "B"
    assert message_of(WriterSchema("protobuf", text), (0, 2)).name == "C"
    with pytest.raises(SchemaUnusable, match=r"means 'A\.B' or 'A\.C'"):
        message_of(WriterSchema("protobuf", text), (0, 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no message at the path 0"),
        ('syntax = "proto3"; message Row {', "line 1: expected a name, not 'the end'"),
        ('syntax = "proto4"; message Row { }', "line 1: expected the syntax proto2 or proto3"),
        ('edition = "2023"; message Row { }', "editions cannot be read"),
        ("message Row { int32 a = 1; }", "expected required, optional or repeated"),
        ('syntax = "proto3"; message Row { required int32 a = 1; }', "proto3 has no required fields"),
        ('syntax = "proto3"; message Row { int32 a = 0; }', "expected an integer from 1"),
        ('syntax = "proto3"; message Row { int32 a = 536870912; }', "expected an integer from 1"),
        ('syntax = "proto3"; message Row { int32 a = 1; int32 b = 1; }', "schema: "),
        ('syntax = "proto3"; message Row { int32 a = 1; int32 a = 2; }', "schema: "),
        ('syntax = "proto3"; message Row { Other a = 1; }', "Other"),
        ('syntax = "proto3"; import "gone.proto"; message Row { gone.Other a = 1; }', "gone.Other"),
        ('syntax = "proto3"; message Row { map<float, int32> a = 1; }', "a key of a map"),
        ('syntax = "proto3"; message Row { map<string, int32> a = 1; map<string, int32> A = 2; }', "schema: "),
        ('syntax = "proto3"; enum E { A = 1; } message Row { E a = 1; }', "schema: "),
        ('syntax = "proto3";\nmessage Row {\n int32 § = 1; }', "line 3: expected a name, a number"),
        ('syntax = "proto3"; message Row { int32 a = 1 }', "expected ';', not '}'"),
        ('syntax = "proto3"; option x = "\\q"; message Row { }', "an escape that does not exist"),
        ("message Row { option message_set_wire_format = true; }", "message sets cannot be read"),
        ("message M { " * (NESTING_MAX + 1), f"messages nest more than {NESTING_MAX} deep"),
        ("option x = " + "{ a: " * 100_000, "the text ends too early"),
        ('syntax = "proto3"; message Row { }' + " " * (1 << 20), "more than 1048576 bytes"),
    ],
    ids=lambda text: text[:50],
)  # fmt: skip
def test_what_is_no_schema_is_unusable_and_says_why(text: str, message: str) -> None:
    with pytest.raises(SchemaUnusable) as caught:
        message_of(WriterSchema("protobuf", text), (0,))
    assert message in str(caught.value)
    assert caught.value.kind == "unusable_schema"
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "body", ["string a = 1;", "fixed64 seconds = 1; int32 nanos = 2;", "int64 seconds = 1;", "repeated int64 value = 1;",
             "NAME value = 1;", "int64 value = 2;"]
)  # fmt: skip
@pytest.mark.parametrize(("name", "column"), [("Timestamp", pa.timestamp("us", "UTC")), ("Int64Value", pa.int64())])
def test_a_message_that_has_but_the_name_of_googles_is_none_of_them(name: str, column: pa.DataType, body: str) -> None:
    declared = f"message {name} {{ {body.replace('NAME', name)} }}"
    text = f'syntax = "proto3"; package google.protobuf; {declared} message Row {{ int64 id = 1; {name} v = 2; }}'
    with pytest.raises(SchemaUnusable, match=f"the schema has message google.protobuf.{name}"):
        decoder(text, pa.schema([("id", pa.int64()), ("v", column)]))
    found = decoded(decoder(text, pa.schema([("id", pa.int64())])), [b"\x08\1"])
    assert {one.kind for one in found.refused} == {"unknown_column"}


def test_features_of_an_edition_say_what_an_absent_field_is() -> None:
    file = parse_proto('syntax = "proto3"; message Row { int64 id = 1; int32 v = 2; }', "any.proto")
    file.syntax, file.edition = "editions", descriptor_pb2.EDITION_2023
    columns = pa.schema([("id", pa.int64()), ("v", pa.int32())])
    for presence, cell in [("EXPLICIT", None), ("IMPLICIT", 0)]:
        file.options.features.field_presence = descriptor_pb2.FeatureSet.FieldPresence.Value(presence)
        of = decoder(base64.standard_b64encode(file.SerializeToString()).decode(), columns)
        assert decoded(of, [b"\x08\1"]).parts[0].columns[1].to_pylist() == [cell]


def test_optional_fields_cost_no_more_than_other_ones() -> None:
    def calls(label: str) -> int:
        count = 0

        def called(*_: object) -> None:
            nonlocal count
            count += 1

        fields = "".join(f"{label} int32 f{number} = {number};" for number in range(1, 300))
        sys.setprofile(called)
        try:
            parse_proto(f'syntax = "proto3"; message Row {{ {fields} }}', "any.proto")
        finally:
            sys.setprofile(None)
        return count

    assert calls("optional") < 2 * calls("")


def test_oneofs_that_stand_for_optional_fields_have_names_of_their_own() -> None:
    fields = "optional int32 a = 1; optional int32 _a = 2; int32 X_a = 3; oneof X__a { int32 b = 4; }"
    text = f'syntax = "proto3"; message Row {{ {fields} }}'
    row: Any = message_of(WriterSchema("protobuf", text), (0,))
    assert [one.name for one in row.oneofs] == ["X__a", "XX_a", "__a"]


def test_a_schema_is_linked_once_whatever_paths_values_name(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
        parsed.append(name)
        return parse_proto(text, name)

    monkeypatch.setattr(schemas, "parse_proto", parse)
    for text, message in [("message Once { }", "no message at the path"), ("message Once { 7 }", "expected required")]:
        for number in range(1, 5):
            with pytest.raises(SchemaUnusable, match=message):
                message_of(WriterSchema("protobuf", text), (number, number))
    assert parsed == ["<schema>.proto"] * 2


def test_a_descriptor_that_is_not_whole_is_unusable() -> None:
    file = parse_proto('syntax = "proto3"; message Row { int64 id = 1; }', "any.proto")
    file.message_type[0].options.uninterpreted_option.add().name.add()
    text = base64.standard_b64encode(file.SerializePartialToString()).decode()
    with pytest.raises(SchemaUnusable, match="required"):
        message_of(WriterSchema("protobuf", text), (0,))


def test_a_descriptor_of_no_file_is_unusable() -> None:
    text = 'syntax = "proto3"; message Row { int64 id = 1; map<string, int32> m = 2; }'
    whole = parse_proto(text, "any.proto")
    entry = whole.message_type[0].nested_type[0]
    files = []
    for fields in ([entry.field[0]], [entry.field[1]], [*entry.field, entry.field[0]], [entry.field[0]] * 2, []):
        file = descriptor_pb2.FileDescriptorProto()
        file.CopyFrom(whole)
        del file.message_type[0].nested_type[0].field[:]
        file.message_type[0].nested_type[0].field.extend(fields)
        files.append(file)
    repeated = descriptor_pb2.FileDescriptorProto()
    repeated.CopyFrom(whole)
    repeated.message_type[0].nested_type[0].field[1].label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    public = descriptor_pb2.FileDescriptorProto()
    public.CopyFrom(whole)
    public.public_dependency.append(-1)
    columns = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.int32()))])
    for file in (*files, repeated):
        with pytest.raises(SchemaUnusable):
            decoder(base64.standard_b64encode(file.SerializeToString()).decode(), columns)
    assert decoder(base64.standard_b64encode(public.SerializeToString()).decode(), columns).fills == {"id", "m"}


@pytest.mark.parametrize("option", ["", '[json_name = "a_b"]'])
def test_names_in_json_may_be_the_same(option: str) -> None:
    """protoc takes such files in proto2, and in proto3 if an option names one of the fields otherwise."""
    file = parse_proto(f"message Row {{ optional int64 a_b = 1; optional int64 aB = 2 {option}; }}", "any.proto")
    for field in file.message_type[0].field:
        field.json_name = "aB"
    encoded = base64.standard_b64encode(file.SerializeToString()).decode()
    for text in (f"message Row {{ optional int64 a_b = 1; optional int64 aB = 2 {option}; }}", encoded):
        row: Any = message_of(WriterSchema("protobuf", text), (0,))
        assert [one.name for one in row.fields] == ["a_b", "aB"]


def test_imports_are_linked_once_and_in_any_order() -> None:
    a = ("a.proto", 'syntax = "proto3"; import "b.proto"; message A { B b = 1; }')
    b = (
        "b.proto",
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message B { google.protobuf.Timestamp t = 1; }',
    )
    text = 'syntax = "proto3"; import "a.proto"; import "b.proto"; import "b.proto"; message Row { A a = 1; B b = 2; }'
    for references in ((a, b), (b, a)):
        row: Any = message_of(WriterSchema("protobuf", text, references), (0,))
        assert row.fields_by_name["b"].message_type.name == "B"
    around = ("a.proto", 'syntax = "proto3"; import "a.proto"; message A { }')
    with pytest.raises(SchemaUnusable):
        message_of(WriterSchema("protobuf", text, (around, b)), (0,))


def test_another_kind_of_schema_is_unusable() -> None:
    with pytest.raises(SchemaUnusable, match="it is of kind avro"):
        message_of(WriterSchema("avro", '"long"'), (0,))


@fuzz(150)
@given(st.data(), tables())
def test_any_text_is_a_schema_or_unusable(data: st.DataObject, table: Table) -> None:
    text = data.draw(damaged([table.text.encode(), EVERYTHING.encode()])).decode("utf-8", "replace")
    with suppress(SchemaUnusable):
        message_of(WriterSchema("protobuf", text), (0,))
