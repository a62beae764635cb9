"""Records of another type than the table's, in a topic of several types."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Literal

import fastavro
import pytest

from lancewal_core.errors import BadRecord
from lancewal_core.names.ids import Position, Region, SchemaKey, TopicId
from lancewal_core.settings.sections import Policy
from lancewal_core.table.contract import Column, Contract, decode_contract, encode_contract
from lancewal_core.wal.writer_schemas import WriterSchema
from lancewal_ingest.append.prepare import Consumed, Preparer, Together, lenient
from lancewal_ingest.decode.avro.schema import CONNECT_DECIMAL
from lancewal_ingest.registry.asked import AskedSchemas
from lancewal_kafka.records import Records
from tests.support.fake_registry import FakeRegistry

Format = Literal["avro", "connect-json"]
WANTED, OTHER = "shop.Order", "shop.Customer"
SCHEMAS = {
    1: {"type": "record", "name": WANTED, "fields": [{"name": "id", "type": "long"}]},
    2: {"type": "record", "name": OTHER, "fields": [{"name": "id", "type": "long"}]},
    3: {"type": "record", "name": OTHER, "fields": [{"name": "nobody", "type": "string"}]},
    4: "long",
}


def contract(value_format: Format, policy: Policy, record: str | None = WANTED, **terms: Any) -> Contract:
    return Contract(
        table_uuid="u", topic="t", topic_id="i", partitions=1, primary_key=("id",), region_key=(), start=(0,),
        key_format="bytes", format=2, value_format=value_format, value_record=record, on_other_record=policy,
        columns=(Column(name="id", type="int64", field_ids=(0,)),), **terms,
    )  # fmt: skip


def in_avro(schema: int, row: object) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(SCHEMAS[schema]), row)  # type: ignore[arg-type] # a schema
    return b"\0" + schema.to_bytes(4) + data.getvalue()


def in_connect(row: Mapping[str, object], **more: object) -> bytes:
    kinds = {int: "int64", str: "string"}
    fields = [{"field": name, "type": kinds[type(cell)]} for name, cell in row.items()]
    return json.dumps({"schema": {"type": "struct", "fields": fields, **more}, "payload": row}).encode()


VALUES: Mapping[Format, list[bytes]] = {
    "avro": [
        in_avro(1, {"id": 0}),
        in_avro(2, {"id": 1}),
        in_avro(3, {"nobody": "x"}),
        in_avro(1, {"id": 3}),
        in_avro(4, 7),
        in_avro(1, {"id": 5}) + b"!",
        in_avro(1, {"id": 6}),
    ],
    "connect-json": [
        in_connect({"id": 0}, name=WANTED),
        in_connect({"id": 1}, name=OTHER),
        in_connect({"nobody": "x"}, name=OTHER),
        in_connect({"id": 3}, name=WANTED),
        in_connect({"id": 7}),
        in_connect({"id": 5}, name=WANTED) + b"!",
        in_connect({"id": 6}, name=WANTED),
    ],
}
"""By format: rows of the table's type at 0, 3 and 6, others at 1, 2 and 4, and a bad one at 5."""


def prepared(by: Contract) -> Together:
    registry = FakeRegistry()
    registry.has = {SchemaKey(f"id-{n}"): WriterSchema("avro", json.dumps(schema)) for n, schema in SCHEMAS.items()}
    values = VALUES[by.value_format]  # type: ignore[index] # one of these
    offsets = list(range(len(values)))
    records = Records(offsets, offsets, [b"k"] * len(values), list(values), [None] * len(values))
    consumed = Consumed(Region("t", TopicId("i"), 0), Position(0), Position(len(values)), records)
    (found,) = Preparer(by, schemas=AskedSchemas(registry)).prepare_all([consumed])
    return found


both = pytest.mark.parametrize("value_format", ["avro", "connect-json"])


@both
def test_under_dead_letter_they_are_bad_records_whatever_the_policy_for_these_is(value_format: Format) -> None:
    for on_bad_record in ("ignore", "stop"):
        entry, letters, _ = prepared(contract(value_format, "dead-letter", on_bad_record=on_bad_record)).outcome
        assert entry is not None
        assert entry.rows.column("id").to_pylist() == ([0, 3, 6] if on_bad_record == "ignore" else [0, 3])
        assert [(one.offset, one.kind) for one in letters] == [(n, "other_record") for n in (1, 2, 4)]
        assert all(WANTED in one.message and OTHER not in one.message for one in letters)


@both
def test_under_ignore_they_are_gaps_of_the_entry(value_format: Format) -> None:
    found = prepared(contract(value_format, "ignore"))
    entry, letters, stop = found.outcome
    assert entry is not None
    assert entry.rows.column("id").to_pylist() == [0, 3, 6]
    assert [one.offset for one in letters] == [one.offset for one in entry.rejected] == [5]
    assert (stop, found.passed_over) == (None, {"other_record": 3})
    assert entry.next == 7


@both
def test_under_stop_the_partition_stops_before_the_first_and_says_how_to_go_on(value_format: Format) -> None:
    entry, letters, stop = prepared(contract(value_format, "stop")).outcome
    assert entry is not None
    assert (entry.next, letters) == (1, ())
    assert stop is not None
    assert isinstance(stop.error, BadRecord)
    assert stop.error.where["offset"] == 1
    assert "`lancewal table alter --on other-record=dead-letter`" in str(stop.error)
    assert "on_other_record is 'stop'" in str(stop.error)


@both
def test_those_who_read_records_again_find_the_same(value_format: Format) -> None:
    for policy, rejected in (("stop", [1, 2, 4, 5]), ("dead-letter", [1, 2, 4, 5]), ("ignore", [5])):
        entry, _, stop = prepared(lenient(contract(value_format, policy))).outcome  # type: ignore[arg-type] # a policy
        assert entry is not None
        assert ([one.offset for one in entry.rejected], stop) == (rejected, None)


@both
def test_without_a_name_any_record_is_mapped_by_its_fields(value_format: Format) -> None:
    entry, letters, _ = prepared(contract(value_format, "stop", None, on_unknown_column="add")).outcome
    assert entry is not None
    assert entry.rows.column("id").to_pylist() == [0, 1, 3, 6] if value_format == "avro" else [0, 1, 3, 7, 6]
    assert "other_record" not in {one.kind for one in letters}


def test_a_contract_without_a_name_is_stored_as_before() -> None:
    for policy, record in (("dead-letter", None), ("ignore", WANTED)):
        one = contract("avro", policy, record)  # type: ignore[arg-type] # a policy
        assert decode_contract(encode_contract(one), "here") == one
        assert (b"on_other_record" in encode_contract(one)) == (b"value_record" in encode_contract(one)) == bool(record)


def one_of_connect(value: bytes, policy: Policy) -> tuple[Mapping[str, int], list[str]]:
    """What is passed over of one value, and the kinds of the letters."""
    by = contract("connect-json", policy, on_bad_record="dead-letter")
    records = Records([0], [0], [b"k"], [value], [None])
    consumed = Consumed(Region("t", TopicId("i"), 0), Position(0), Position(1), records)
    (found,) = Preparer(by).prepare_all([consumed])
    return found.passed_over, [one.kind for one in found.outcome.letters]


OF_OTHER = in_connect({"id": 1}, name=OTHER)


@pytest.mark.parametrize("policy", ["ignore", "dead-letter"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (OF_OTHER[:-1], "not_json"),
        (OF_OTHER[:-1] + b', "schema": {}}', "duplicate_member"),
        (OF_OTHER[:-1] + b', "x": 1}', "wrong_format"),
        (OF_OTHER.replace(b'{"id": 1}', b""), "not_json"),
        (OF_OTHER.replace(b'{"id": 1}', b"\xff no JSON"), "not_json"),
        (OF_OTHER.replace(b'{"id": 1}', b"[" * 65 + b"]" * 65), "too_deep"),
        (b'{"payload": {,}' + OF_OTHER.replace(b'{"schema', b', "schema').split(b', "payload')[0] + b"}", "not_json"),
    ],
    ids=["cut", "schema twice", "third member", "no payload", "no UTF-8", "too deep", "payload first"],
)
def test_a_value_that_is_broken_is_of_no_other_record(value: bytes, kind: str, policy: Policy) -> None:
    assert one_of_connect(value, policy) == ({}, [kind])


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ({"type": "string", "name": OTHER}, "x"),
        ({"type": "string"}, "x"),
        ({"type": "string"}, "\ud800"),
        ({"type": "int64"}, 10**400),
        ({"type": "nothing", "name": "\ud800"}, [[1], {"a": None}]),
        ({"type": "struct", "name": OTHER, "fields": [], "optional": True}, None),
        (
            {"type": "struct", "name": OTHER, "fields": [{"field": "a", "type": "bytes", "name": CONNECT_DECIMAL}]},
            {"a": "AQ=="},
        ),
    ],
    ids=["named text", "text", "surrogate", "huge", "unknown type", "null", "no scale"],
)
def test_a_schema_of_another_name_is_of_another_record_whatever_it_says(schema: object, payload: object) -> None:
    text, row = json.dumps(schema), json.dumps(payload)
    for value in (f'{{"schema": {text}, "payload": {row}}}', f'{{"payload": {row}, "schema": {text}}}'):
        assert one_of_connect(value.encode(), "ignore") == ({"other_record": 1}, [])
        assert one_of_connect(value.encode(), "dead-letter") == ({}, ["other_record"])


def test_a_payload_of_another_record_may_have_a_member_twice() -> None:
    value = OF_OTHER.replace(b'{"id": 1}', b'{"id": 1, "id": 2}')
    assert one_of_connect(value, "ignore") == ({"other_record": 1}, [])
