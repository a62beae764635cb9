"""Texts of schemas: what they mean, and which are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lancewal_core.wal.writer_schemas import SCHEMA_BYTES_MAX, WriterSchema
from lancewal_ingest.decode.avro.schema import (
    AvroArray,
    AvroEnum,
    AvroField,
    AvroFixed,
    AvroMap,
    AvroPlain,
    AvroRecord,
    AvroType,
    AvroUnion,
    Logical,
    parse_schema,
    takes_no_bytes,
)
from lancewal_ingest.decode.framed.payloads import SchemaUnusable

LONG, INT, STRING, BYTES = AvroPlain("long"), AvroPlain("int"), AvroPlain("string"), AvroPlain("bytes")


def parsed(schema: Any, *references: tuple[str, Any]) -> AvroType:
    texts = tuple((name, json.dumps(one)) for name, one in references)
    return parse_schema(WriterSchema("avro", json.dumps(schema), texts))


def record(*types: Any, name: str = "r", **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{n}", "type": t} for n, t in enumerate(types)],
        **more,
    }


def fixed(name: str = "x", size: Any = 4, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def enum(symbols: Any, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "e", "symbols": symbols, **more}


GOOD: list[tuple[Any, AvroType]] = [
    ("string", STRING),
    ({"type": "string", "avro.java.string": "String"}, STRING),
    ([], AvroUnion(())),
    ({"type": "array", "items": ["null", "int"]}, AvroArray(AvroUnion((AvroPlain("null"), INT)))),
    ({"type": "map", "values": "long"}, AvroMap(LONG)),
    (["long", "int"], AvroUnion((LONG, INT))),
    (enum(["A", "b_1"], default="A", doc="d"), AvroEnum("e", ("A", "b_1"))),
    (fixed(namespace="a.b"), AvroFixed("a.b.x", 4)),
    (fixed("c.x", namespace="a.b"), AvroFixed("c.x", 4)),
    ([fixed("a"), fixed("b")], AvroUnion((AvroFixed("a", 4), AvroFixed("b", 4)))),
    ({"type": "int", "logicalType": "date"}, AvroPlain("int", Logical("date"))),
    ({"type": "long", "logicalType": "local-timestamp-nanos"}, AvroPlain("long", Logical("local-timestamp-nanos"))),
    (fixed(size=16, logicalType="uuid"), AvroFixed("x", 16, Logical("uuid"))),
    (fixed(size=12, logicalType="duration"), AvroFixed("x", 12, Logical("duration"))),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9}, AvroPlain("bytes", Logical("decimal", 9, 0))),
    (fixed(logicalType="decimal", precision=9, scale=9), AvroFixed("x", 4, Logical("decimal", 9, 9))),
]
BAD: list[tuple[Any, str]] = [
    ("no_such_type", "'no_such_type' is not defined"),
    (7, "expected a name, an object or an array"),
    (None, "expected a name, an object or an array"),
    ({}, "expected a member 'type'"),
    ({"type": None}, "expected a member 'type'"),
    ({"type": 3}, "expected a member 'type' with the name of a type"),
    ({"type": {"type": "string"}}, "expected a member 'type' with the name of a type"),
    ({"type": ["null", "string"]}, "expected a member 'type' with the name of a type"),
    ({"type": "no_such_type"}, "'no_such_type' is not defined"),
    (["int", "int"], "each have another type or name"),
    (["int", {"type": "int", "logicalType": "date"}], "each have another type or name"),
    ([{"type": "array", "items": "int"}, {"type": "array", "items": "long"}], "each have another type or name"),
    (["int", ["long"]], "a union must not be a branch of a union"),
    ({"type": "array"}, "expected a member 'items'"),
    ({"type": "map"}, "expected a member 'values'"),
    ({"type": "record", "fields": []}, "expected a name"),
    ({"type": "record", "name": "r"}, "expected a member 'fields'"),
    ({"type": "record", "name": "r", "fields": {}}, "expected an array of fields"),
    ({"type": "record", "name": "r", "fields": ["f"]}, "field 0: expected an object"),
    ({"type": "record", "name": "r", "fields": [{"type": "int"}]}, "field 0: expected a name"),
    ({"type": "record", "name": "r", "fields": [{"name": "a-b", "type": "int"}]}, "field 0: expected a name"),
    ({"type": "record", "name": "r", "fields": [{"name": "a"}]}, "field 'a': expected a member 'type'"),
    (
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}] * 2},
        "field 'a': there are two fields",
    ),
    (
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int", "order": "up"}]},
        "expected the order",
    ),
    ({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int", "aliases": "b"}]}, "expected 'aliases'"),
    (record(name="1r"), "expected a name of letters"),
    (record(name=".r"), "expected a name of letters"),
    (record(namespace="a b"), "expected a name of letters"),
    (record(namespace=3), "that are strings"),
    (record(name="long"), "a primitive type has the name 'long'"),
    (record(aliases=["a.b", "c d"]), "expected 'aliases'"),
    (record(fixed(), fixed(size=5)), "field 'f1': there are two types of the name 'x'"),
    (record(fixed(), {**enum(["A"]), "name": "x"}), "field 'f1': there are two types of the name 'x'"),
    (record(record("int", name="s"), record("long", name="s")), "field 'f1': there are two types of the name 's'"),
    (record(record(name="r")), "field 'f0': there are two types of the name 'r'"),
    (record("s", record(name="s")), "field 'f0': type 's' is not defined before its use"),
    (enum(None), "expected symbols"),
    (enum(["a", 1]), "expected symbols"),
    (enum(["a b"]), "expected symbols"),
    (enum(["a", "a"]), "there is a symbol twice"),
    (enum(["a"], default="b"), "the default is not a symbol"),
    (fixed(size=-1), "expected a size"),
    (fixed(size=2**31), "expected a size"),
    (fixed(size="4"), "expected a size"),
    (fixed(size=True), "expected a size"),
    ({"type": "fixed", "name": "f"}, "expected a member 'size'"),
]
"""Schemas that are refused, and words of the message."""


@pytest.mark.parametrize(("schema", "type_"), GOOD, ids=str)
def test_a_schema_says_its_type(schema: Any, type_: AvroType) -> None:
    assert parsed(schema) == type_


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "int", "logicalType": "timestamp-millis"},
        {"type": "int", "logicalType": "no-such-type"},
        {"type": "int", "logicalType": 7},
        fixed(size=15, logicalType="uuid"),
        fixed(size=11, logicalType="duration"),
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "bytes", "logicalType": "decimal", "precision": 0},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": -1},
        {"type": "bytes", "logicalType": "decimal", "precision": "2"},
        {"type": "bytes", "logicalType": "decimal", "precision": True},
        fixed(logicalType="decimal", precision=10),
        fixed(size=0, logicalType="decimal", precision=1),
    ],
    ids=str,
)
def test_a_logical_type_that_does_not_fit_is_ignored(schema: Any) -> None:
    found = parsed(schema)
    assert isinstance(found, AvroPlain | AvroFixed)
    assert found.logical is None


def test_names_are_those_of_their_namespaces() -> None:
    inner = record({"type": "fixed", "name": "x", "size": 1}, "other.x", "x", name="in.ner")
    schema = record({**fixed(), "namespace": "other"}, inner, "in.x", "int", name="outer", namespace="out")
    found = parsed(schema)
    assert isinstance(found, AvroRecord)
    assert found.name == "out.outer"
    types = [field.type for field in found.fields]
    within = types[1]
    assert isinstance(within, AvroRecord)
    assert within.name == "in.ner"
    assert [field.type for field in within.fields] == [
        AvroFixed("in.x", 1),
        AvroFixed("other.x", 4),
        AvroFixed("in.x", 1),
    ]
    assert types[2] == AvroFixed("in.x", 1)


def test_a_name_without_namespace_is_found_from_within_one() -> None:
    found = parsed(record("x", namespace="a"), ("x", fixed()))
    assert isinstance(found, AvroRecord)
    assert found.fields == (AvroField("f0", AvroFixed("x", 4)),)


def test_a_type_may_be_defined_again_as_before() -> None:
    inner = record(fixed(), ["null", "s"], name="s")
    found = parsed(record(inner, inner, fixed(), {"type": "x"}))
    assert isinstance(found, AvroRecord)
    first, second, third, fourth = [field.type for field in found.fields]
    assert first is second
    assert isinstance(first, AvroRecord)
    assert third is fourth is first.fields[0].type


def test_references_may_refer_to_each_other() -> None:
    found = parsed(record("b.two"), ("one", fixed("a.one")), ("two", record("a.one", name="b.two")))
    assert isinstance(found, AvroRecord)
    (field,) = found.fields
    assert isinstance(field.type, AvroRecord)
    assert field.type.fields == (AvroField("f0", AvroFixed("a.one", 4)),)
    with pytest.raises(SchemaUnusable, match=r"'a\.one' is not defined"):
        parsed(record("b.two"), ("two", record("a.one", name="b.two")), ("one", fixed("a.one")))


def test_a_record_may_contain_itself() -> None:
    found = parsed(record(["null", "r"], "null", fixed(size=0)))
    assert isinstance(found, AvroRecord)
    assert found.fields[0].type == AvroUnion((AvroPlain("null"), found))
    assert not takes_no_bytes(found)
    nothing = parsed(record("null", fixed(size=0), record(name="s")))
    assert isinstance(nothing, AvroRecord)
    assert takes_no_bytes(nothing)


@pytest.mark.parametrize(("schema", "words"), BAD, ids=str)
def test_what_is_no_schema_is_refused_with_its_place(schema: Any, words: str) -> None:
    with pytest.raises(SchemaUnusable, match=words):
        parsed(schema)


@pytest.mark.parametrize("text", ["", "{", "string", "[" * 5000, '{"type": "int"} x'])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(SchemaUnusable, match="is not JSON"):
        parse_schema(WriterSchema("avro", text))


def test_what_is_no_unicode_is_refused() -> None:
    with pytest.raises(SchemaUnusable, match="no Unicode"):
        parse_schema(WriterSchema("avro", "\ud800"))


def test_depth_and_size_have_limits() -> None:
    deep: Any = "int"
    for _ in range(63):
        deep = {"type": "array", "items": deep}
    parsed(deep)
    with pytest.raises(SchemaUnusable, match="types nest more than 64 deep"):
        parsed({"type": "array", "items": deep})
    large = "x" * (SCHEMA_BYTES_MAX // 2)
    parsed({"type": "int", "doc": large})
    with pytest.raises(SchemaUnusable, match="have more than 1048576 bytes"):
        parsed({"type": "int", "doc": large}, ("x", {"type": "int", "doc": large}))
    with pytest.raises(SchemaUnusable, match="it is of kind protobuf"):
        parse_schema(WriterSchema("protobuf", '"int"'))


def test_a_long_chain_of_records_is_parsed() -> None:
    """Names make a schema deep that nests little."""
    chain = [record("null", name="r0")]
    chain += [record(f"r{number - 1}", f"r{number - 1}", name=f"r{number}") for number in range(1, 3000)]
    found = parsed(chain)
    assert isinstance(found, AvroUnion)
    last = found.branches[-1]
    assert isinstance(last, AvroRecord)
    assert takes_no_bytes(last)
