"""A column that gets the values of another mode of the connector: the message names the setting and the value to give it.

Values and schemas are those of real connectors in three modes: the defaults, ``string`` with ``isostring``, and ``double``
with ``connect``.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.sections import Envelope
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.decode.naming import Names, Naming
from lancewal_ingest.envelopes.envelope import EnvelopeRules
from lancewal_ingest.formats import value_decoder
from tests.ingest.envelopes.test_postgres_with_schemas import EVENTS, SCHEMAS, written
from tests.support.debezium import Sample, consumed, contract_of, samples, taken

WRONG_IN_JSON = [
    ("all_types", "num_ps", "decimal128(12, 3)", "decimal.handling.mode=string"),
    ("all_types", "num", "decimal128(38, 10)", "decimal.handling.mode=string"),
    ("all_types", "num", "string", "decimal.handling.mode=string"),
    ("all_types", "num_ps", "float64", "decimal.handling.mode=double"),
    ("all_types", "anum", "list<decimal128(8, 2)>", "decimal.handling.mode=string"),
    ("all_types_double", "num_ps", "decimal128(12, 2)", "decimal.handling.mode=string"),
    ("all_types_double", "num_ps", "string", "decimal.handling.mode=string"),
    ("all_types_string", "num_ps", "float64", "decimal.handling.mode=double"),
    ("all_types", "ts", "timestamp[us, UTC]", "time.precision.mode=isostring"),
    ("all_types", "ts", "timestamp[us]", "json: epoch_us"),
    ("all_types", "ts", "string", "time.precision.mode=isostring"),
    ("all_types", "d", "date32", "columns int32"),
    ("all_types", "t", "time64[us]", "int64"),
    ("all_types_string", "ts", "timestamp[us]", "time.precision.mode=adaptive"),
    ("all_types_string", "ts", "int64", "time.precision.mode=adaptive"),
    ("all_types_string", "d", "date32", "time.precision.mode=isostring"),
    ("all_types_string", "d", "int32", "time.precision.mode=adaptive"),
    ("all_types_string", "ad", "list<int32>", "time.precision.mode=adaptive"),
    ("all_types", "iv", "string", "interval.handling.mode=string"),
    ("all_types_string", "iv", "int64", "interval.handling.mode=numeric"),
    ("all_types_string", "iv", "duration[us]", "interval.handling.mode=numeric"),
    ("all_types", "hs", "map<string, string>", "hstore.handling.mode=map"),
    ("all_types_string", "hs", "string", "hstore.handling.mode=json"),
    ("all_types_string", "r4", "binary", "binary.handling.mode=bytes"),
]
NOT_ABOUT_MODES = [
    ("all_types", "txt", "int32"),
    ("all_types", "txt", "decimal128(12, 3)"),
    ("all_types", "pt", "string"),
    ("all_types", "o", "int32"),
    ("all_types", "b", "string"),
    ("all_types", "ch", "uuid"),
]


def of_json(table: str) -> Sample:
    """The row with values of each type."""
    (found,) = [one for one in samples("postgres_types", table) if one.key == b'{"tenant":1,"id":10}']
    return found


def message(record: Sample, name: str, type_: str, envelope: str = "debezium", **terms: str) -> str:
    """The message of the dead letter that a record becomes for a column of a type."""
    columns = {"tenant": "int32", "id": "int64", name: type_}
    contract = contract_of(
        columns, ("tenant", "id"), on_bad_record="dead-letter", on_unknown_column="ignore", envelope=envelope, **terms
    )
    (letter,) = [letter for one in taken(contract, [record]) for letter in one.outcome.letters]
    assert letter.kind in ("type", "range")
    assert f"column '{name}" in letter.message
    return letter.message


@pytest.mark.parametrize(("table", "name", "type_", "setting"), WRONG_IN_JSON)
def test_the_setting_is_named_in_json(table: str, name: str, type_: str, setting: str) -> None:
    found = message(of_json(table), name, type_)
    assert setting in found
    assert found.count(". ") <= 2  # sentences


@pytest.mark.parametrize(("table", "name", "type_"), NOT_ABOUT_MODES)
def test_no_setting_is_named_where_no_mode_is_the_cause(table: str, name: str, type_: str) -> None:
    assert "mode" not in message(of_json(table), name, type_)


@pytest.mark.parametrize(("type_", "value"), [("bool", b"1"), ("int8", b"true")])
def test_a_bool_of_mysql(type_: str, value: bytes) -> None:
    event = b'{"before":null,"after":{"tenant":1,"id":10,"b":%s},"source":{"a":1},"op":"c"}' % value
    record = Sample("t", 0, 0, "", b'{"tenant":1,"id":10}', event)
    assert "TinyIntOneToBooleanConverter" in message(record, "b", type_, partitioner="none")


def test_rows_out_of_their_envelope_have_the_same_words_and_other_rows_have_none() -> None:
    record = of_json("all_types")
    after = json.dumps(json.loads(record.value or b"")["after"]).encode()
    row = Sample("x", record.partition, record.offset, "x", record.key, after)
    unwrapped = message(row, "num_ps", "decimal128(12, 3)", "debezium-unwrapped")
    assert unwrapped == message(record, "num_ps", "decimal128(12, 3)")
    plain = message(row, "num_ps", "decimal128(12, 3)", "none")
    assert unwrapped == f"{plain}. Set decimal.handling.mode=string in the connector, if its mode is another one"


WRONG_IN_SCHEMAS = [
    ("all_types", "num_ps", "string", "decimal.handling.mode=string"),
    ("all_types", "num", "string", "decimal.handling.mode=string"),
    ("all_types", "num", "decimal128(38, 10)", "struct<scale: int32, value: binary>"),
    ("all_types", "num_ps", "float64", "decimal.handling.mode=double"),
    ("all_types", "num", "float64", "decimal.handling.mode=double"),
    ("all_types", "anum", "list<string>", "decimal.handling.mode=string"),
    ("all_types", "f8", "decimal128(12, 2)", "decimal.handling.mode=precise"),
    ("all_types_string", "num_ps", "decimal128(12, 3)", "decimal.handling.mode=precise"),
    ("all_types_string", "num_ps", "float64", "decimal.handling.mode=double"),
    ("all_types", "ts", "string", "time.precision.mode=isostring"),
    ("all_types", "d", "string", "time.precision.mode=isostring"),
    ("all_types_string", "ts", "timestamp[us]", "time.precision.mode=adaptive"),
    ("all_types_string", "d", "date32", "time.precision.mode=adaptive"),
    ("all_types_string", "t", "time64[us]", "time.precision.mode=adaptive"),
    ("all_types_string", "ad", "list<date32>", "time.precision.mode=adaptive"),
    ("all_types", "iv", "string", "interval.handling.mode=string"),
    ("all_types", "bin", "string", "binary.handling.mode=hex or base64"),
    ("all_types", "txt", "binary", "binary.handling.mode=bytes"),
    ("all_types", "hs", "map<string, string>", "hstore.handling.mode=map"),
    ("all_types", "num_p", "int64", "bigint.unsigned.handling.mode=long"),
]


@pytest.mark.parametrize(("table", "name", "type_", "setting"), WRONG_IN_SCHEMAS)
def test_the_setting_is_named_where_schemas_show_the_mode(table: str, name: str, type_: str, setting: str) -> None:
    refused = refused_in_avro(table, {"tenant": "int32", "id": "int64", name: type_}, "debezium")
    assert f"column '{name}" in refused
    assert setting in refused
    assert refused.count(". ") <= 2  # sentences


def test_without_an_envelope_nothing_is_known_about_a_connector() -> None:
    """The envelope itself as a row: a text in a column of bytes."""
    assert "mode" not in refused_in_avro("all_types", {"op": "binary"}, "none")


def refused_in_avro(table: str, columns: dict[str, str], envelope: Envelope) -> str:
    """The message of an event in Avro that is refused for its schema."""
    (event,) = [event for event in EVENTS if event["table"] == table]
    key = tuple(columns)[:-1] or tuple(columns)
    rows = RowSchema(pa.schema([(name, parse_type(type_)) for name, type_ in columns.items()]), key, key)
    naming = Naming(Names(dict.fromkeys(columns), ignores=True))
    decoder = value_decoder("avro", rows, naming, SCHEMAS, envelope=EnvelopeRules(envelope))
    (refused,) = decoder.decode([event["value"]], np.zeros(1, np.uint8)).refused
    assert refused.kind == "type"
    return refused.message


@pytest.mark.parametrize("key_format", ["json-compact", "json"])
def test_an_unsigned_bigint_that_comes_as_a_negative_number(key_format: str) -> None:
    """In the row, and in a key, which is all that a delete has."""
    contract = contract_of({"id": "uint64"}, on_bad_record="dead-letter", partitioner="none", key_format=key_format)
    key, row = b'{"id":-1}', b'{"before":null,"after":{"id":-1},"source":{"a":1},"op":"c"}'
    deleted = b'{"before":{"id":-1},"after":null,"source":{"a":1},"op":"d"}'
    good = b'{"before":null,"after":{"id":9223372036854775807},"source":{"a":1},"op":"c"}'
    records = [
        Sample("t", 0, 0, "", key, row),
        Sample("t", 0, 1, "", key, deleted),
        Sample("t", 0, 2, "", key, None),
        Sample("t", 0, 3, "", b'{"id":9223372036854775807}', good),
    ]
    entry, letters, _ = Preparer(contract).prepare(consumed(records)[0])
    assert [(one.offset, one.kind) for one in letters] == [(0, "range"), (1, "key_form"), (2, "key_form")]
    named = ["bigint.unsigned.handling.mode=precise" in letter.message for letter in letters]
    assert named == [True, key_format == "json", key_format == "json"]
    assert entry is not None
    assert entry.rows.column("id").to_pylist() == [9223372036854775807]


def test_an_unsigned_bigint_in_avro() -> None:
    fields = [{"name": "id", "type": "long"}]
    envelope = {
        "type": "record", "name": "Envelope", "fields": [
            {"name": "after", "type": ["null", {"type": "record", "name": "Value", "fields": fields}]},
            {"name": "source", "type": "string"}, {"name": "op", "type": "string"},
        ],
    }  # fmt: skip
    rows = RowSchema(pa.schema([pa.field("id", pa.uint64(), nullable=False)]), ("id",), ("id",))
    decoder = value_decoder("avro", rows, Naming(), SCHEMAS, envelope=EnvelopeRules("debezium"))
    sent = [written({"after": {"id": id_}, "source": "", "op": "c"}, envelope, 910) for id_ in (-1, 7)]
    found = decoder.decode(sent, np.zeros(2, np.uint8))
    assert [column.to_pylist() for part in found.parts for column in part.columns] == [[7]]
    (refused,) = found.refused
    assert refused.kind == "range"
    assert refused.message.startswith(
        "column 'id': expected a number from 0 to 9223372036854775807. The connector writes"
    )
    assert "bigint.unsigned.handling.mode=precise" in refused.message
