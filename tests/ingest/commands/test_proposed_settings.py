"""``lancewal config init``: what it proposes is a settings file, which holds once the commented choices are made."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
import yaml

from lancewal_core.cli import program as cli
from lancewal_core.errors import InvalidInput, InvalidSettings
from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.schema import COLUMNS_MAX, Op
from lancewal_core.settings.load import Settings, load_settings
from lancewal_core.table.contract import Contract
from lancewal_core.wal.writer_schemas import SCHEMA_BYTES_MAX, WriterSchema
from lancewal_ingest.commands.proposed_settings import proposed_settings
from lancewal_ingest.decode.naming import naming_of
from lancewal_ingest.formats import value_decoder
from lancewal_kafka.topic import TopicState
from lancewal_tables.define.create import declared_rows
from lancewal_tables.define.register import first_contract
from lancewal_tables.define.topic import FittingTopic
from tests.support.stub_registry import StubRegistry, serving

_CHOICE = re.compile(
    r"^(\s*)# (?=(uri|topic|primary_key|region_key|on_unknown_column|registry|kafka|record|key|partitioner):)", re.M
)
TOPIC = FittingTopic(TopicState("orders", "id", 1, compacted=False), [0], [])
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ],
}


def proposal(folder: Path, schema: object, name: str = "schema.json") -> str:
    file = folder / name
    file.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return proposed_settings(Settings(), "", file)


def taken(text: str) -> str:
    """The text with all commented choices made."""
    return _CHOICE.sub(r"\1", text)


def columns(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)["table"]["columns"]
    return found


def checked(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Settings:
    """The settings of a proposal, which ``config check`` accepts."""
    file = folder / "lancewal.yaml"
    file.write_text(re.sub("^kafka:.*(\n +.*)?$", "", taken(text), flags=re.M))
    assert cli.run(("config", "check", "-c", str(file))) == 0, capsys.readouterr().err
    assert "The settings are valid." in capsys.readouterr().out
    return load_settings(file, {})


def with_field_ids(contract: Contract) -> Contract:
    """The contract as it is once a table was made."""
    numbers = itertools.count()

    def ids(type_: pa.DataType) -> list[int]:
        return [next(numbers), *(one for n in range(type_.num_fields) for one in ids(type_.field(n).type))]

    columns = [one.model_copy(update={"field_ids": tuple(ids(parse_type(one.type)))}) for one in contract.columns]
    return contract.model_copy(update={"columns": tuple(columns)})


def decoded(settings: Settings, value: bytes) -> list[Any]:
    """The cells of the row that a value becomes in the table that the settings declare."""
    contract = with_field_ids(first_contract("/t", None, declared_rows(settings), settings.table, TOPIC))
    decoder = value_decoder(contract.value_format, contract.rows, naming_of(contract))
    found = decoder.decode([value], np.full(1, Op.UPSERT, np.uint8))
    assert found.refused == []
    return [column[0].as_py() for column in found.parts[0].columns]


def test_a_record_of_avro(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = proposal(tmp_path, ORDER, "order.avsc")
    assert columns(text) == {
        "id": "int64",
        "total": "decimal128(12, 2)",
        "at": "timestamp[us, UTC]",
        "lines": "list<string>",
    }
    settings = checked(text, tmp_path, capsys).table
    assert (settings.format.value, settings.format.record) == ("avro", "shop.Order")
    assert (settings.primary_key, settings.region_key, settings.partitioner) == (("id",), ("id",), "crc32")
    assert yaml.safe_load(text)["table"].keys() == {"format", "columns"}


def test_a_schema_of_kafka_connect_alone_and_in_a_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decimal = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    schema = {
        "type": "struct",
        "name": "shop.Order",
        "fields": [
            {"field": "first", "type": "double", "optional": True},
            {"field": "no.1", "type": "string"},
            {"field": "Id", "type": "int32"},
            {"field": "id", "type": "string"},
            {"field": "_change_type", "type": "bytes", **decimal},
            {"field": "a`b: #\n", "type": "boolean"},
            {"field": "tags", "type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}},
            {"field": "b\nuri: x", "type": "map", "keys": {"type": "int32"}, "values": {"type": "string"}},
            {"field": "nö", "type": "array", "items": {"type": "int16"}},
        ],
    }
    payload = {
        "first": 1.5,
        "no.1": "x",
        "Id": 7,
        "id": "k",
        "_change_type": "AQ==",
        "a`b: #\n": True,
        "tags": [],
        "nö": [1],
    }
    value = {"schema": schema, "payload": payload}
    text = proposal(tmp_path, value)
    assert text.replace("value.json", "schema.json") == proposal(tmp_path, schema)
    assert columns(text) == {
        "first": "float64",
        "Id": "int32",
        "id_2": {"type": "string", "field": "id"},
        "field_change_type": {"type": "decimal128(38, 2)", "field": "_change_type"},
        "a_b____": {"type": "bool", "field": "a`b: #\n"},
        "nö": "list<int16>",
    }
    settings = checked(text, tmp_path, capsys)
    assert settings.table.primary_key == ("Id",)  # the first one that can be a key
    cells = decoded(settings, json.dumps(value).encode())
    assert [str(cell) for cell in cells] == ["1.5", "7", "k", "0.01", "True", "[1]"]


def test_a_json_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "key": {"type": "string", "format": "uuid"},
            "n": {"type": ["null", "integer"]},
            "f": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "at": {"type": "string", "format": "date-time"},
            "day": {"$ref": "#/$defs/day"},
            "blob": {"type": "string", "contentEncoding": "base64"},
            "in": {
                "type": "object",
                "properties": {"x": {"type": "boolean"}, "k": {"type": "string", "format": "uuid"}},
            },
            "many": {"type": "array", "items": {"type": "string"}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "any": {},
            "two": {"type": ["string", "integer"]},
            "self": {"$ref": "#"},
            "loop": {"$ref": "#/properties/loop"},
            "away": {"$ref": "https://elsewhere.example/x"},
        },
        "$defs": {"day": {"type": "string", "format": "date"}},
    }
    text = proposal(tmp_path, schema)
    assert columns(text) == {
        "key": "uuid",
        "n": "int64",
        "f": "float64",
        "at": "timestamp[us, UTC]",
        "day": "date32",
        "blob": "binary",
        "in": "struct<x: bool, k: string>",
        "many": "list<string>",
        "map": "map<string, int64>",
    }
    assert [line.split(":")[0].split()[-1] for line in text.splitlines() if "No column" in line] == [
        "any", "two", "self", "loop", "away",
    ]  # fmt: skip
    settings = checked(text, tmp_path, capsys).table
    assert (settings.format.value, settings.primary_key, settings.on_unknown_column) == (
        "json-schema",
        ("key",),
        "ignore",
    )


def test_the_first_message_of_a_proto_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = """
    syntax = "proto3"; package shop;
    message Order { int64 id = 1; optional string note = 2; repeated double xs = 3; Order next = 4; map<string, int32> m = 5; }
    message Other { string s = 1; }
    """
    text = proposal(tmp_path, schema, "order.proto")
    assert columns(text) == {"id": "int64", "note": "string", "xs": "list<float64>", "m": "map<string, int32>"}
    settings = checked(text, tmp_path, capsys).table
    assert (settings.format.value, settings.format.record, settings.primary_key) == ("protobuf", "shop.Order", ("id",))
    assert yaml.safe_load(text)["table"]["format"]["record"] == "shop.Order", "there is another message"
    assert "The schema's first message. No rows: shop.Other.\n" in text
    alone = proposal(tmp_path, schema.replace("message Other { string s = 1; }", ""), "order.proto")
    assert "record" not in yaml.safe_load(alone)["table"]["format"]
    many = schema + "".join(f"message M{n} {{}} " for n in range(12))
    assert "No rows: shop.Other, shop.M0, shop.M1, " in proposal(tmp_path, many, "order.proto")
    assert "shop.M8 and 3 more.\n" in proposal(tmp_path, many, "order.proto")
    with pytest.raises(InvalidInput, match="the schema has no message"):
        proposal(tmp_path, 'syntax = "proto3";', "order.proto")
    for wrong in ("message", 'import "away.proto"; message M { A a = 1; }', "x" * 200, "\0"):
        with pytest.raises(InvalidInput, match="cannot be used"):
            proposal(tmp_path, wrong, "order.proto")
    (tmp_path / "bad.proto").write_bytes(b"\xff")
    with pytest.raises(InvalidInput, match="in UTF-8"):
        proposed_settings(Settings(), "", tmp_path / "bad.proto")


def test_records_within_themselves_and_unions_are_no_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "tree", "type": node},
            {"name": "u", "type": ["int", "string"]},
            {"name": "e", "type": {"type": "record", "name": "Empty", "fields": []}},
            {"name": "nothing", "type": "null"},
            {"name": "ok", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
        ],
    }
    text = proposal(tmp_path, schema)
    assert columns(text) == {"ok": "string"}
    assert text.count("no column type fits it") == 4
    assert checked(text, tmp_path, capsys).table.on_unknown_column == "ignore"


def test_an_empty_record_has_no_columns_and_says_so(tmp_path: Path) -> None:
    text = proposal(tmp_path, {"type": "record", "name": "R", "fields": []})
    assert columns(text) == {}
    assert "no field that can be a column" in text
    assert "# primary_key" in text


def test_a_huge_schema_has_as_many_columns_as_a_table_may(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = [{"name": f"f{n}", "type": "int"} for n in range(COLUMNS_MAX + 500)]
    text = proposal(tmp_path, {"type": "record", "name": "R", "fields": fields})
    assert len(columns(text)) == COLUMNS_MAX
    assert text.count("No column for field ") == 100
    assert "No column for 400 further fields" in text
    checked(text, tmp_path, capsys)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("", "expected a JSON file"),
        ('syntax = "proto3";', "expected a JSON file"),
        ("[" * 100_000, "expected a JSON file"),
        ("7", "cannot be used"),
        ('"long"', "the schema is long"),
        ('["null", "long"]', "union of null, long"),
        ({"type": "record", "name": "R", "fields": [{"name": "a b", "type": "int"}]}, "cannot be used"),
        ({"type": "struct", "fields": [{"type": "int8"}]}, "field 0"),
        ({"type": "object", "properties": []}, "expected an object with properties"),
        ({"$schema": "x", "type": "array"}, "expected an object with properties"),
        ({"schema": {"type": "string"}, "payload": "x"}, "the schema is string"),
        (" " * (SCHEMA_BYTES_MAX + 1), "at most"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_what_is_no_schema_of_a_row_is_refused(tmp_path: Path, schema: object, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        proposal(tmp_path, schema)


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(("config", "init", "--from-schema", str(tmp_path / "none.avsc"))) == 2
    assert "No such file" in capsys.readouterr().err


def test_one_source_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given in ((), ("--from-subject", "s", "--from-schema", "f"), ("--from-schema", "f", "--from-debezium", "t")):
        assert cli.run(("config", "init", *given)) == 2
        assert "give one source" in capsys.readouterr().err
    for wrong in (("--from-debezium", "t.*"), ("--from-schema", "f", "--to", "d")):
        assert cli.run(("config", "init", *wrong)) == 2
        assert "--to" in capsys.readouterr().err
    assert cli.run(("config", "init", "--from-debezium", "t")) == 2
    assert "kafka.bootstrap_servers" in capsys.readouterr().err


def subject(registry: StubRegistry, name: str, schema: object, kind: str = "AVRO") -> None:
    more = {"subject": name, "version": 3, "id": 7, "schemaType": kind}
    registry.has(f"/subjects/{name}/versions/latest", json.dumps(schema), **more)


def of_subject(registry: StubRegistry, name: str, **options: str) -> str:
    settings = Settings.model_validate({"registry": {"url": registry.url, "options": options}})
    return proposed_settings(settings, name, None)


def test_a_subject_says_topic_and_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as registry:
        subject(registry, "orders-value", ORDER)
        subject(registry, "orders-key", {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}]})
        text = of_subject(registry, "orders-value", **{"basic.auth.user.info": "me:secretxq"})
        assert "secretxq" not in text
        settings = checked(text, tmp_path, capsys)
        table = yaml.safe_load(text)["table"]
        assert (table["topic"], table["primary_key"], table["region_key"]) == ("orders", ["id"], ["id"])
        assert (table["format"], settings.registry.url) == ({"value": "avro", "key": "avro"}, registry.url)


@pytest.mark.parametrize(
    "key",
    [
        "long",
        {"type": "record", "name": "K", "fields": []},
        {"type": "record", "name": "K", "fields": [{"name": "other", "type": "long"}]},
        {"type": "record", "name": "K", "fields": [{"name": "total", "type": "bytes"}]},
        {"type": "record", "name": "K", "fields": [{"name": "at", "type": "long"}]},
    ],
    ids=str,
)
def test_a_key_that_is_no_record_of_columns_stays_a_choice(
    tmp_path: Path, key: object, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as registry:
        subject(registry, "orders-value", ORDER)
        subject(registry, "orders-key", key)
        text = of_subject(registry, "orders-value")
    assert "key" not in yaml.safe_load(text)["table"]["format"]
    assert "# primary_key: [id]" in text
    assert "no record of some of these columns" in text
    assert checked(text, tmp_path, capsys).table.format.key == "avro"


def test_keys_may_have_another_format_than_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as registry:
        subject(registry, "orders-value", ORDER)
        more = {"subject": "orders-key", "version": 1, "id": 8, "schemaType": "PROTOBUF"}
        registry.has("/subjects/orders-key/versions/latest", 'syntax = "proto3"; message K { int64 id = 1; }', **more)
        text = of_subject(registry, "orders-value")
    assert yaml.safe_load(text)["table"]["format"] == {"value": "avro", "key": "protobuf"}
    assert checked(text, tmp_path, capsys).table.region_key == ("id",)


def test_any_subject_has_a_schema_and_an_unknown_one_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as registry:
        subject(registry, "shop.Order", ORDER)
        assert "# topic: " in of_subject(registry, "shop.Order")
        with pytest.raises(InvalidInput, match="'orders-value': the registry has no such subject"):
            of_subject(registry, "orders-value")
        subject(registry, "proto-value", "x", "PROTOBUF")
        with pytest.raises(InvalidInput, match="cannot be used"):
            of_subject(registry, "proto-value")
    with pytest.raises(InvalidSettings, match=r"registry\.url is not set"):
        proposed_settings(Settings(), "orders-value", None)


def test_a_row_of_a_proposed_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The values of Avro become rows in the proposed columns."""
    from tests.conformance.test_value_decoder import SCHEMAS, framed

    settings = checked(proposal(tmp_path, ORDER), tmp_path, capsys)
    contract = first_contract("/t", None, declared_rows(settings), settings.table, TOPIC)
    data = io.BytesIO()
    row: Mapping[str, Any] = {"id": 7, "total": None, "at": 5, "lines": ["a"]}
    fastavro.schemaless_writer(data, fastavro.parse_schema(ORDER), row)
    decoder = value_decoder("avro", contract.rows, naming_of(contract), SCHEMAS)
    found = decoder.decode([framed(WriterSchema("avro", json.dumps(ORDER)), data.getvalue())], np.zeros(1, np.uint8))
    assert found.refused == []
    cells: Sequence[pa.Array] = found.parts[0].columns
    assert [cell[0].as_py() for cell in cells][::3] == [7, ["a"]]
