"""Values of other formats are named, with the setting; odd values of the table's own format never are."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.json.foreign import wrong_format
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.outcomes import KINDS, OF_COLUMNS
from tests.ingest.decode.json.cases import Header, Ways, records

CONNECT_SCHEMA = {"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "id"}], "optional": False}
SOURCE = {"version": "3.5.0.Final", "connector": "postgresql", "db": "shop", "schema": "public", "table": "orders"}
ROW = {"id": 1, "k": "a"}
GUID = bytes([1]) + bytes(range(16))

FOREIGN: dict[str, tuple[bytes, list[Header], str]] = {
    "confluent, avro": (b"\x00\x00\x00\x00\x07\x02\x02a", [], "Confluent's wire format"),
    "confluent, avro of an empty record": (b"\x00\x00\x00\x00\x07", [], "Confluent's wire format"),
    "confluent, protobuf": (b"\x00\x00\x00\x01\x07\x00\x08\x01\x12\x01a", [], "Confluent's wire format"),
    "confluent, protobuf of a later message": (b"\x00\x00\x00\x00\x09\x04\x02\x00\x08\x01", [], "Confluent's wire format"),
    "confluent, json schema": (b'\x00\x00\x00\x00\x05{"id":1,"k":"a"}', [], "Confluent's wire format"),
    "confluent, a high id": (b"\x00\x7f\xff\xff\xff\x02", [], "Confluent's wire format"),
    "apicurio": (b"\x00\x00\x00\x00\x00\x00\x00\x00\x07\x02\x02a", [], "Apicurio's wire format"),
    "apicurio, a high id": (b"\x00\x00\x00\x00\x00\x7f\xff\xff\xff\x02", [], "Apicurio's wire format"),
    "confluent, in a header": (b"\x02\x02a", [("__value_schema_id", GUID)], "in header __value_schema_id."),
    "apicurio, in a header": (b"\x02\x02a", [("apicurio.value.globalId", bytes(8))], "begins with apicurio.value."),
    "apicurio, behind a trace": (
        b"\x02\x02a", [("traceparent", b"00"), ("apicurio.value.contentId", bytes(8))], "begins with apicurio.value.",
    ),
    "avro container": (b"Obj\x01\x04\x14avro.codec\x08null\x16avro.schema", [], "an Avro container file"),
    "connect": (json.dumps({"schema": CONNECT_SCHEMA, "payload": ROW}).encode(), [], "schema and payload"),
    "connect, no schema": (json.dumps({"schema": None, "payload": ROW}).encode(), [], "schema and payload"),
    "connect, a text": (b'{"payload":"a","schema":{"type":"string","optional":false}}', [], "schema and payload"),
    "connect, with spaces": (b' \n{ "schema" : {"type":"struct"}, "payload" : null }', [], "schema and payload"),
    "debezium": (
        json.dumps({"before": None, "after": ROW, "source": SOURCE, "op": "c", "ts_ms": 1}).encode(), [], "Debezium's",
    ),
    "debezium, snapshot": (json.dumps({"after": ROW, "source": SOURCE, "op": "r"}).encode(), [], "Debezium's envelope"),
    "debezium, delete": (json.dumps({"op": "d", "before": ROW, "after": None, "source": SOURCE}).encode(), [], "Debezium's"),
    "debezium in connect": (
        json.dumps({"schema": CONNECT_SCHEMA, "payload": {"op": "u", "after": ROW, "source": SOURCE}}).encode(), [],
        "schema and payload), and in it Debezium's envelope",
    ),
}  # fmt: skip

HONEST: dict[str, bytes] = {
    "nothing": b"",
    "one byte 0": b"\x00",
    "only bytes 0": bytes(40),
    "not JSON": b"Object",
    "a cut object": b'{"schema": {"type": "struct"}, "payload": ',
    "an array": b'[{"op": "c", "source": {}, "after": {}}]',
    "a text": b'"{\\"schema\\": null, \\"payload\\": 1}"',
    "a number": b"7",
    "null": b"null",
    "a misspelt column": b'{"id": 1, "k": "a", "kk": 2}',
    "a missing key": b'{"k": "a"}',
    "a wrong type": b'{"id": "1", "k": "a"}',
    "a payload without a schema": b'{"payload": {"id": 1}}',
    "a schema that is a name": b'{"schema": "public", "payload": {"id": 1}}',
    "a schema that is another object": b'{"schema": {"name": "public"}, "payload": {"id": 1}}',
    "more than schema and payload": b'{"schema": {"type": "struct"}, "payload": {"id": 1}, "id": 1}',
    "an op of another program": b'{"op": "insert", "source": {"db": "x"}, "after": {"id": 1}}',
    "an op without a source": b'{"op": "c", "after": {"id": 1}}',
    "a source that is a text": b'{"op": "c", "source": "web", "after": {"id": 1}}',
    "an op without before and after": b'{"op": "c", "source": {"db": "x"}, "id": 1}',
    "bytes that look like bare Avro": b"\x02\x02a",
    "bytes that look like bare Protobuf": b"\x08\x01\x12\x01a",
    "the end of a container file": b"bj\x01\x04",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_another_format_is_named_with_the_setting(name: str) -> None:
    value, headers, said = FOREIGN[name]
    for many in (1, 3):  # alone, and among rows
        good = [json.dumps(ROW).encode()] * (many - 1)
        decoded = Ways().both(records([*good, value], headers=[*[None] * (many - 1), headers]))
        (rejected,) = decoded.rejected
        assert rejected.kind == "wrong_format"
        assert said in rejected.message
        setting = "table.format.envelope to debezium" if said.startswith("Debezium") else "table.format.value is json"
        assert setting in rejected.message
        assert decoded.rows.num_rows == many - 1


@pytest.mark.parametrize("name", HONEST)
def test_an_odd_value_of_the_own_format_is_not_called_foreign(name: str) -> None:
    (rejected,) = Ways().both(records([HONEST[name]])).rejected
    assert rejected.kind != "wrong_format"
    assert wrong_format(HONEST[name], [("traceparent", b"00")], ("id", "k")) is None


@pytest.mark.parametrize(
    "name", ["__value_schema_id_of_another_program", "apicurio.key.globalId", "my.apicurio.value.x"]
)
def test_another_header_with_a_similar_name_names_no_format(name: str) -> None:
    assert wrong_format(b"\x02\x02a", [(name, GUID)], ("id", "k")) is None


@pytest.mark.parametrize(
    "value", [b'{"schema": null, "payload": 1}', b'{"op": "c", "source": {}, "before": null, "after": 7}']
)
def test_an_envelope_is_a_row_where_the_table_has_such_columns(value: bytes) -> None:
    """And where such a row is refused, for a key that is missing, no other format is named."""
    struct = pa.struct([("x", pa.int64())])
    types = {"id": pa.int64(), "schema": pa.string(), "payload": pa.int64(), "op": pa.string(), "source": struct}
    columns = pa.schema([*types.items(), ("before", pa.int64()), ("after", pa.int64())])
    rows = RowSchema(columns, ("id",), ("id",))
    whole = b'{"id": 1, ' + value[1:]
    decoded = Ways(rows=rows).both(records([whole, value]))
    assert decoded.rows["id"].to_pylist() == [1]
    assert [rejected.kind for rejected in decoded.rejected] == ["missing_key"]


def test_columns_count_by_the_names_that_records_use() -> None:
    columns = pa.schema([("id", pa.int64()), ("code", pa.string()), ("src", pa.struct([("x", pa.int64())]))])
    rows = RowSchema(columns, ("id",), ("id",))
    naming = Naming(fields={"code": "op", "src": "source"})
    (rejected,) = Ways(rows=rows, naming=naming).both(records([b'{"op": "c", "source": {}, "after": 7}'])).rejected
    assert rejected.kind != "wrong_format"


def test_a_newer_contract_is_asked_for() -> None:
    """It may have the columns that make the value look like an envelope."""
    assert "wrong_format" in OF_COLUMNS <= KINDS.keys()
