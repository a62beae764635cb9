"""Keys that name a schema: each is the row's, of a schema that the table takes, or its record is no row."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import KeyFormChanged
from lancewal_core.names.ids import Position, Region, SchemaKey, TopicId
from lancewal_core.record_keys.key_form import KeyForm
from lancewal_core.rows.schema import OP
from lancewal_core.table.contract import Column, Contract, FormerName
from lancewal_core.wal.writer_schemas import StoredSchema, WriterSchema, stored_schema
from lancewal_ingest.append.prepare import Consumed, PrepareOutcome, Preparer
from lancewal_ingest.decode.framed.decoder import FramedDecoder
from lancewal_ingest.decode.outcomes import OF_COLUMNS
from lancewal_ingest.decode.weight import PIECE_BYTES
from lancewal_ingest.registry.asked import AskedSchemas
from lancewal_kafka.headers import HeaderList
from lancewal_kafka.records import Records
from tests.support.fake_registry import FakeRegistry

CONTRACT = Contract(
    format=2, table_uuid="u", topic="t", topic_id="i", partitions=1, primary_key=("customer", "id"),
    region_key=("id", "customer"), key_format="avro", start=(0,), on_bad_record="dead-letter",
    key_forms=(KeyForm("id-1"),),
    columns=(
        Column(name="customer", type="string", field_ids=(0,)),
        Column(name="id", type="int64", field_ids=(1,)),
        Column(name="s", type="string", field_ids=(2,)),
    ),
)  # fmt: skip
ROW = {"customer": "Ä/é", "id": 1000, "s": "secret"}
KEY = {"customer": "Ä/é", "id": 1000}
UPSERT, DELETE = ("Ä/é", 1000, 0), ("Ä/é", 1000, 1)
GUID = uuid.UUID("8d3c3b4e-0f5a-4c0e-9d0b-6f1e2a3b4c5d")
HEADER = "__key_schema_id"


def record(*fields: tuple[str, Any], name: str = "Key") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": type_} for field, type_ in fields]}


ID, CUSTOMER = ("id", "long"), ("customer", "string")
SCHEMAS: dict[int, Any] = {
    1: record(ID, CUSTOMER),
    2: record(ID, CUSTOMER, name="Renamed"),  # it means the same
    3: record(CUSTOMER, ID),
    4: record(("id", ["null", "long"]), CUSTOMER),
    5: record(("id", "int"), CUSTOMER),
    6: record(ID, CUSTOMER, ("region", "string")),
    7: record(ID),
    8: record(("id", "string"), CUSTOMER),
    9: record(("id", "double"), CUSTOMER),
    10: {"type": "array", "items": "long"},
    11: record(ID, CUSTOMER, ("s", "string")),
    12: record(("number", "long"), CUSTOMER),
    13: "long",
    14: {"type": "int"},
    15: ["null", "long"],
    16: "string",
    17: {"type": "enum", "name": "E", "symbols": ["A"]},
}
REGISTRY = FakeRegistry(id_20=WriterSchema("avro", "{"), id_21=WriterSchema("json-schema", "{}"))
REGISTRY.has |= {SchemaKey(f"id-{n}"): WriterSchema("avro", json.dumps(one)) for n, one in SCHEMAS.items()}
REGISTRY.has[SchemaKey(f"guid-{GUID}")] = WriterSchema("avro", json.dumps(SCHEMAS[1]))
KNOWN = AskedSchemas(REGISTRY)


def payload(number: int, key: Any = KEY) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(SCHEMAS[number]), key)
    return data.getvalue()


def keyed(number: int, key: Any = KEY) -> bytes:
    return b"\0" + number.to_bytes(4) + payload(number, key)


def outcome(
    keys: Sequence[bytes | None],
    values: Sequence[Mapping[str, object] | None],
    contract: Contract = CONTRACT,
    headers: Sequence[HeaderList | None] | None = None,
    *,
    reads_again: bool = True,
) -> PrepareOutcome:
    texts = [None if value is None else json.dumps(value).encode() for value in values]
    count = len(keys)
    records = Records(list(range(count)), [0] * count, list(keys), list(texts), list(headers or [None] * count))
    consumed = Consumed(Region("t", TopicId("i"), 0), Position(0), Position(count), records)
    return Preparer(contract, schemas=KNOWN, reads_again=reads_again).prepare(consumed)


def prepared(
    keys: Sequence[bytes | None],
    values: Sequence[Mapping[str, object] | None],
    contract: Contract = CONTRACT,
    headers: Sequence[HeaderList | None] | None = None,
) -> list[object]:
    """For each record its row's (customer, id) and operation, or the kind of its rejection, as who reads again finds it."""
    entry, letters, stop = outcome(keys, values, contract, headers)
    assert stop is None, stop
    assert entry is not None
    found: dict[int, object] = {letter.offset: letter.kind for letter in letters}
    for letter in letters:
        assert "secret" not in letter.message
        assert "mallory" not in letter.message
    for row in entry.rows.to_pylist():
        found[row["_offset"]] = tuple(row[name] for name in (*contract.primary_key, OP))
    assert sorted(found) == list(range(len(keys)))
    return [found[offset] for offset in sorted(found)]


def taking(*forms: str, **terms: object) -> Contract:
    return CONTRACT.model_copy(update={"key_forms": forms, **terms})


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_key_of_a_schema_that_is_taken(number: int) -> None:
    """Columns in any order, in a union with null, and of a type that has less values."""
    assert prepared([keyed(number)] * 2, [ROW, None], taking(f"id-{number}")) == [UPSERT, DELETE]
    assert prepared([keyed(number)] * 2, [ROW, None], taking("id-19")) == ["key_form_changed"] * 2


NO_KEYS: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "no frame": b'{"id":1000}',
    "a cut frame": keyed(1)[:4],
    "a frame alone": keyed(1)[:5],
    "cut": keyed(1)[:-1],
    "longer": keyed(1) + b"!",
    "id 0": b"\0\0\0\0\0" + payload(1),
    "a null": keyed(4, {**KEY, "id": None}),
    "a further field": keyed(6, {**KEY, "region": "mallory"}),
    "a further column": keyed(11, {**KEY, "s": "secret"}),
    "a part": keyed(7, {"id": 1000}),
    "a text for a number": keyed(8, {**KEY, "id": "1000"}),
    "a float for a number": keyed(9, {**KEY, "id": 1000.0}),
    "no record": keyed(10, [1000]),
    "another name": keyed(12, {"number": 1000, "customer": "Ä/é"}),
    "a schema that nobody knows": b"\0\0\0\0\x13" + payload(1),
    "a schema that is none": b"\0\0\0\0\x14" + payload(1),
    "a schema of another kind": b"\0\0\0\0\x15" + payload(1),
    "bad UTF-8": keyed(1, {"id": 1000, "customer": "mallory"}).replace(b"m", b"\xff"),
}


@pytest.mark.parametrize("name", NO_KEYS)
def test_a_key_that_does_not_decode(name: str) -> None:
    """Whether its schema is among those that the table takes or not."""
    all_of_them = taking(*(f"id-{n}" for n in range(1, 22)))
    assert prepared([NO_KEYS[name]] * 2, [ROW, None], all_of_them) == ["key_form", "key_form"]
    assert prepared([NO_KEYS[name]] * 2, [ROW, None]) == ["key_form", "key_form"]
    assert "key_form_changed" in OF_COLUMNS  # a newer contract is looked for first


def test_a_key_with_more_bytes_than_it_needs_is_the_same_row_s() -> None:
    """No serializer writes it.  The page about keys says what becomes of a row with several keys."""
    short, long = b"\xd0\x0f", b"\xd0\x8f\0"
    assert keyed(1).count(short) == 1
    assert prepared([keyed(1).replace(short, long)] * 2, [ROW, None]) == [UPSERT, DELETE]


def test_a_key_of_another_row() -> None:
    others = [keyed(1, {**KEY, "id": 1001}), keyed(1, {**KEY, "customer": ""}), keyed(2, {**KEY, "id": 1001})]
    assert prepared(others, [ROW] * 3) == ["key_differs"] * 3


def test_a_key_that_is_a_part_of_the_primary_key_deletes_nothing() -> None:
    contract = taking("id-7", region_key=("id",))
    keys = [keyed(7, {"id": 1000})] * 2 + [keyed(7, {"id": 1001})]
    assert prepared(keys, [ROW, None, ROW], contract) == [UPSERT, "null_value", "key_differs"]


@pytest.mark.parametrize("number", [7, 13, 14, 15])
def test_a_key_of_one_column_may_be_a_value_alone(number: int) -> None:
    contract = taking(f"id-{number}", "id-16", "id-17", region_key=("id",), primary_key=("id",))
    one, other = ({"id": n} if number == 7 else n for n in (1000, 1001))
    keys = [keyed(number, one), keyed(number, one), keyed(number, other), keyed(number, one)[:-1], keyed(16, "1000")]
    found = prepared(keys, [ROW, None, ROW, ROW, ROW], contract)
    assert found == [(1000, 0), (1000, 1), "key_differs", "key_form", "key_form"]
    assert prepared([keyed(17, "A"), keyed(15, None)], [ROW] * 2, contract) == ["key_form"] * 2
    assert prepared([keyed(16, "Ä/é")], [ROW], taking("id-16", region_key=("customer",))) == [UPSERT]
    assert prepared([keyed(13, 1000)], [ROW], taking("id-13")) == ["key_form"]  # the region key has two columns


@pytest.mark.parametrize(
    "text", ["", "{", "7", "[]", '{"type": {"type": "long"}}', "[" * 100_000, '"\\ud800"', '"Key"']
)
def test_a_schema_of_keys_that_is_none(text: str) -> None:
    schemas = AskedSchemas(FakeRegistry(id_1=WriterSchema("avro", text)))
    records = Records([0], [0], [b"\0\0\0\0\1" + payload(13, 1000)], [json.dumps(ROW).encode()], [None])
    consumed = Consumed(Region("t", TopicId("i"), 0), Position(0), Position(1), records)
    contract = taking("id-1", region_key=("id",))
    _, letters, _ = Preparer(contract, schemas=schemas).prepare(consumed)
    assert [letter.kind for letter in letters] == ["key_form"]


def test_schemas_in_headers_are_forms_of_their_own() -> None:
    """The bytes of such a key are the payload alone, whichever schema the header names."""
    by_id: HeaderList = [(HEADER, b"\0\0\0\0\1")]
    by_guid: HeaderList = [(HEADER, b"\1" + GUID.bytes)]
    keys = [payload(1), payload(1), keyed(1), b"\1" + GUID.bytes + payload(1), payload(1)]
    headers: list[HeaderList | None] = [by_id, by_guid, None, None, [(HEADER, b"x")]]
    named = ["header-id-1", f"header-guid-{GUID}", "id-1", f"guid-{GUID}"]
    for place, form in enumerate(named):
        expected: list[object] = [*["key_form_changed"] * 4, "key_form"]
        expected[place] = UPSERT
        assert prepared(keys, [ROW] * 5, taking(form), headers) == expected
        expected[place] = DELETE
        assert prepared(keys, [None] * 5, taking(form), headers) == expected
    assert prepared(keys, [ROW] * 5, taking(*named), headers) == [UPSERT] * 4 + ["key_form"]


def test_a_header_beside_no_key() -> None:
    """The schema of a missing key tells nothing."""
    header: HeaderList = [(HEADER, b"\0\0\0\0\1")]
    assert prepared([None, None], [ROW, None], taking("header-id-1"), [header] * 2) == ["key_form"] * 2


def test_a_letter_that_is_produced_again() -> None:
    """A whole letter is its record.  A cut one is a bad record, whichever schema its key names."""
    frame: HeaderList = [(HEADER, b"\0\0\0\0\1")]
    letter: HeaderList = [("lancewal.source", b"t-0-7"), ("lancewal.kind", b"type"), *frame]
    cut: HeaderList = [*letter, ("lancewal.value.bytes", b"2000000")]
    keys, headers = [payload(1)] * 4, [letter, letter, cut, cut]
    found = prepared(keys, [ROW, None, ROW, None], taking("header-id-1"), headers)
    assert found == [UPSERT, DELETE, "cut_letter", "cut_letter"]
    assert (
        prepared(keys, [ROW, None, ROW, None], taking("id-1"), headers) == ["key_form_changed"] * 2 + ["cut_letter"] * 2
    )


def test_a_bad_value_is_bad_whatever_its_key_is() -> None:
    assert prepared([keyed(2), keyed(1)], [{"customer": 1, "id": 1000}] * 2) == ["type", "type"]


def test_keys_of_several_schemas_in_one_poll() -> None:
    """The partition stops before the first key of another schema; records before it are rows."""
    keys = [keyed(1), None, keyed(2), keyed(1), keyed(2)]
    for policy in ("dead-letter", "ignore", "stop"):
        contract = taking("id-1", on_bad_record=policy)
        entry, letters, stop = outcome(keys[:1] + keys[2:], [ROW] * 4, contract, reads_again=False)
        assert entry is not None
        assert (entry.next, entry.rejected, letters) == (1, (), ())
        assert stop is not None
        assert isinstance(stop.error, KeyFormChanged)
        assert stop.error.where == {"topic": "t", "partition": 0, "offset": 1}
        assert "lancewal table alter --key-form id-2" in str(stop.error)
        assert "secret" not in str(stop.error)
    entry, letters, stop = outcome(keys, [ROW] * 5, reads_again=False)
    assert entry is not None
    assert (entry.next, [one.kind for one in letters]) == (2, ["key_form"])
    assert prepared(keys, [ROW] * 5, taking("id-1", "id-2")) == [UPSERT, "key_form", *[UPSERT] * 3]
    assert prepared(keys, [ROW] * 5) == [UPSERT, "key_form", "key_form_changed", UPSERT, "key_form_changed"]


def test_a_delete_of_another_schema_stops_too() -> None:
    entry, _, stop = outcome([keyed(1), keyed(2)], [None, None], reads_again=False)
    assert entry is not None
    assert entry.next == 1
    assert stop is not None
    assert isinstance(stop.error, KeyFormChanged)


@pytest.mark.parametrize("reads_again", [False, True])
def test_a_table_without_a_form_has_no_row(reads_again: bool) -> None:
    """Nobody makes an entry of a form that no contract lists, also not a person who rejects records."""
    entry, letters, stop = outcome([None, keyed(1)], [ROW] * 2, taking(), reads_again=reads_again)
    assert entry is not None
    assert (entry.next, entry.rows.num_rows, [one.kind for one in letters]) == (1, 0, ["key_form"])
    assert stop is not None
    assert isinstance(stop.error, KeyFormChanged)


def test_the_first_good_key_names_the_form() -> None:
    keys: list[bytes | None] = [None, keyed(7, {"id": 1}), keyed(3, {**KEY, "id": 1}), keyed(2), keyed(1)]
    records = Records(list(range(5)), [0] * 5, list(keys), [json.dumps(ROW).encode()] * 5, [None] * 5)
    consumed = Consumed(Region("t", TopicId("i"), 0), Position(0), Position(5), records)
    (found,) = Preparer(taking(), schemas=KNOWN).prepare_all([consumed])
    assert found.outcome.stop is not None
    assert (found.outcome.stop.key_form, found.by_terms) == ("id-2", True)
    (found,) = Preparer(taking("id-1", "id-2"), schemas=KNOWN).prepare_all([consumed])
    assert found.outcome.stop is None


def test_a_key_column_that_was_renamed() -> None:
    former = (FormerName(id=1, name="number"),)
    contract = taking("id-1", "id-12", former_names=former)
    keys = [keyed(12, {"number": 1000, "customer": "Ä/é"}), keyed(1), keyed(12, {"number": 1, "customer": "Ä/é"})]
    assert prepared(keys, [ROW] * 3, contract) == [UPSERT, UPSERT, "key_differs"]
    assert prepared(keys[:1], [None], contract) == [DELETE]


def test_a_key_column_that_records_call_otherwise() -> None:
    customer, number, s = CONTRACT.columns
    columns = (customer, number.model_copy(update={"field": "number"}), s)
    contract = taking("id-1", "id-12", columns=columns)
    row = {"customer": "Ä/é", "number": 1000}
    keys = [keyed(12, row), keyed(1)]
    assert prepared(keys, [row] * 2, contract) == [UPSERT, "key_form"]
    assert prepared(keys[:1], [None], contract) == [DELETE]


def test_a_schema_of_keys_that_a_person_has_accepted() -> None:
    """Keys before the position are read by the stored schema, later ones by the accepted one."""
    one, other = WriterSchema("avro", json.dumps(SCHEMAS[1])), WriterSchema("avro", json.dumps(SCHEMAS[3]))
    versions = (stored_schema(one, "a"), stored_schema(other, "b", {0: Position(1)}))

    class Accepted:
        asked_first = False

        def known(self, key: SchemaKey) -> tuple[StoredSchema, ...]:
            return versions

        def read(self, key: SchemaKey, at_least: int = 1) -> tuple[StoredSchema, ...]:
            return versions

    contract = taking("id-1", schema_versions={"id-1": 2})
    frame = b"\0\0\0\0\1"
    keys = [frame + payload(1), frame + payload(3), frame + payload(3), frame + payload(1)]
    texts = [json.dumps(ROW).encode(), json.dumps(ROW).encode(), None, json.dumps(ROW).encode()]
    records = Records(list(range(4)), [0] * 4, list(keys), list(texts), [None] * 4)
    consumed = Consumed(Region("t", TopicId("i"), 0), Position(0), Position(4), records)
    entry, letters, _ = Preparer(contract, schemas=Accepted()).prepare(consumed)
    assert entry is not None
    assert entry.rows.column(OP).to_pylist() == [0, 0, 1]
    assert [letter.kind for letter in letters] == ["key_form"]


def test_json_with_a_schema() -> None:
    """Any text of the key after a frame."""
    schemas = AskedSchemas(FakeRegistry(id_1=WriterSchema("json-schema", "{}")))
    contract = taking("id-1", key_format="json-schema")
    keys = [
        b'\0\0\0\0\1{"id":1000,"customer":"\xc3\x84/\xc3\xa9"}',
        b'\0\0\0\0\1 {"customer":"\xc3\x84/\xc3\xa9", "id":1000}',
        b'{"id":1000,"customer":"\xc3\x84/\xc3\xa9"}',
        b'\0\0\0\0\1{"id":1000}',
        b'\0\0\0\0\1{"id":1001,"customer":"\xc3\x84/\xc3\xa9"}',
    ]
    records = Records(list(range(5)), [0] * 5, list(keys), [json.dumps(ROW).encode()] * 5, [None] * 5)
    consumed = Consumed(Region("t", TopicId("i"), 0), Position(0), Position(5), records)
    entry, letters, _ = Preparer(contract, schemas=schemas).prepare(consumed)
    assert entry is not None
    assert entry.rows.num_rows == 2
    assert [letter.kind for letter in letters] == ["key_form", "key_form", "key_differs"]


def test_keys_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of one byte names a symbol of a megabyte: keys are decoded in pieces, and a delete weighs what its row takes."""
    symbol = "a" * 1_000_000
    enum = {"type": "enum", "name": "E", "symbols": [symbol, "b"]}
    schemas = AskedSchemas(FakeRegistry(id_1=WriterSchema("avro", json.dumps(record(("customer", enum))))))
    assert schemas.read(SchemaKey("id-1"))
    contract = taking("id-1", region_key=("customer",), primary_key=("customer",))
    count = 100
    values = [None if place % 2 else json.dumps({"customer": "b"}).encode() for place in range(count)]
    keys: list[bytes | None] = [b"\0\0\0\0\1" + bytes([0 if place < 90 else 2]) for place in range(count)]
    records = Records(list(range(count)), [0] * count, keys, list(values), [None] * count)
    preparer = Preparer(contract, schemas=schemas)
    taken: list[int] = []
    decode = FramedDecoder.decode

    def counted(self: Any, keys: Any, *others: Any) -> Any:
        taken.append(len(keys))
        return decode(self, keys, *others)

    monkeypatch.setattr(FramedDecoder, "decode", counted)
    weights = preparer.weights.each(records)
    assert (weights[1::2] >= len(symbol)).all()
    assert (weights[::2] < 10_000).all()
    consumed = Consumed(Region("t", TopicId("i"), 0), Position(0), Position(count), records)
    entry, letters, _ = preparer.prepare(consumed)
    assert entry is not None
    assert max(taken) <= PIECE_BYTES // len(symbol)
    assert sum(taken) == 50 + count  # deletes, then all rows
    assert [letter.kind for letter in letters] == ["key_differs"] * 45
    assert entry.rows.num_rows == 55


PROTOBUF = """syntax = "proto3";
message Key { int64 id = 1; string customer = 2; }
message Other { int64 id = 1; string customer = 2; message Inner { int64 id = 1; string customer = 2; } }
message Part { int64 id = 1; }
message More { int64 id = 1; string customer = 2; string s = 3; }
"""


def test_protobuf() -> None:
    """Another message of the same schema is another form, since the key's frame has the path to it."""
    schemas = AskedSchemas(FakeRegistry(id_1=WriterSchema("protobuf", PROTOBUF)))
    message = b"\x08\xe8\x07\x12\x05" + "Ä/é".encode()
    frame, other, inner = b"\0\0\0\0\1\0", b"\0\0\0\0\1\x02\x02", b"\0\0\0\0\1\x04\x02\0"
    header: HeaderList = [(HEADER, other)]
    keys = [
        frame + message,
        other + message,
        inner + message,
        message,
        frame + b"\x12\x05" + "Ä/é".encode() + b"\x08\xe8\x07",  # fields may stand in any order
        frame + b"\x08\xe9\x07\x12\x05" + "Ä/é".encode(),
        frame + message[:-1],
        b"\0\0\0\0\1\x02\x04" + message[:3],
        b"\0\0\0\0\1\x02\x06" + message,
        b"\0\0\0\0\1",
    ]
    keys += [b"\0\0\0\0\1\x02\0" + message, b"\0\0\0\0\1\x80\0" + message, b"\0\0\0\0\1\x02\x82\0" + message, message]
    headers: list[HeaderList | None] = [None] * len(keys)
    headers[3], headers[13] = header, [(HEADER, b"\0\0\0\0\1\x02\0")]
    count = len(keys)
    records = Records(list(range(count)), [0] * count, list(keys), [json.dumps(ROW).encode()] * count, headers)
    consumed = Consumed(Region("t", TopicId("i"), 0), Position(0), Position(count), records)
    forms = {0: "id-1", 1: "id-1.1", 2: "id-1.1.0", 3: "header-id-1.1", 10: "id-1.0", 13: "header-id-1"}
    for place, form in forms.items():
        contract = taking(form, key_format="protobuf")
        entry, letters, _ = Preparer(contract, schemas=schemas, reads_again=True).prepare(consumed)
        assert entry is not None
        assert entry.rows.column("_offset").to_pylist() == ([0, 4] if place == 0 else [place])
        kinds = {letter.offset: letter.kind for letter in letters}
        changed = {0, 1, 2, 3, 4, 10, 13} - {place} - ({4} if place == 0 else set())
        assert {offset for offset, kind in kinds.items() if kind == "key_form_changed"} == changed
        assert [kinds[offset] for offset in range(5, 10)] == ["key_differs", *["key_form"] * 4]
        assert [kinds[offset] for offset in (11, 12)] == ["key_form"] * 2


def test_values_and_keys_name_schemas() -> None:
    """Both must be stored before a record is decoded."""
    records = Records(
        [0, 1], [0] * 2, [keyed(1), payload(1)], [keyed(11, ROW), None], [None, [(HEADER, b"\0\0\0\0\3")]]
    )
    preparer = Preparer(taking("id-1", value_format="avro"), schemas=KNOWN)
    named = sorted((key, indexes.tolist()) for key, indexes in preparer.schemas_of(records))
    assert preparer.names_schemas
    assert named == [("id-1", [0]), ("id-11", [0]), ("id-3", [1])]


@given(
    st.lists(
        st.binary(max_size=20) | st.tuples(st.integers(1, 5), st.integers(0, 20), st.binary(max_size=3)), max_size=8
    )
)
def test_any_bytes(drawn: list[bytes | tuple[int, int, bytes]]) -> None:
    """No key raises an error, and each is judged as it is alone."""
    keys = [one if isinstance(one, bytes) else _damaged(keyed(one[0]), *one[1:]) for one in drawn]
    alone = [prepared([key], [ROW])[0] for key in keys]
    assert set(alone) <= {"key_form", "key_differs", "key_form_changed", UPSERT}
    if keys:
        assert prepared([*[keyed(1)] * 3, *keys], [ROW] * (3 + len(keys))) == [UPSERT] * 3 + alone


def _damaged(key: bytes, at: int, by: bytes) -> bytes:
    return key[:at] + by + key[at + len(by) :]
