"""Rows that a connector has taken out of the envelope, by the settings for deletes; and rows of MariaDB."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.sections import ValueFormat
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.envelopes.envelope import EnvelopeRules
from lancewal_ingest.formats import value_decoder
from tests.ingest.envelopes.test_postgres_with_schemas import SCHEMAS, became, written
from tests.support.debezium import Sample, contract_of, in_envelope, rows_of, samples, table_after, taken, unwrapped

ACCOUNTS = {"id": "int32", "name": "string", "amount": "string", "at": "string"}
TABLES = {"accounts": ACCOUNTS, "accounts_full": ACCOUNTS, "keychg": {"id": "int64", "v": "int32"}}
KEEPS_DELETES = ["default", "rewrite", "rewrite_tombstone", "to_tombstone"]
UNWRAPPED = {"envelope": "debezium-unwrapped", "on_unknown_column": "ignore"}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("mode", KEEPS_DELETES)
def test_every_setting_that_keeps_deletes(mode: str, table: str) -> None:
    records = samples(f"unwrapped_{mode}", table)
    expected = {key: {name: row[name] for name in TABLES[table]} for key, row in rows_of(records, unwrapped).items()}
    assert expected or table == "accounts_full"
    assert table_after(contract_of(TABLES[table], **UNWRAPPED), records) == expected


def test_a_deleted_row_is_one_by_its_text_alone() -> None:
    def sent(deleted: object) -> list[Sample]:
        row = {"id": 1, "name": "x", "amount": None, "at": None, "__deleted": deleted}
        return [Sample("accounts", 0, 0, "", b'{"id":1}', json.dumps(row).encode())]

    contract = contract_of(ACCOUNTS, **UNWRAPPED, on_misrouted="dead-letter", partitioner="none")
    assert len(table_after(contract, sent("false"))) == len(table_after(contract, sent(None))) == 1
    assert table_after(contract, sent("true")) == {}
    for wrong, kind in (("TRUE", "envelope"), ("", "envelope"), (True, "type"), (1, "type")):
        dead = contract.model_copy(update={"on_bad_record": "dead-letter"})
        assert [letter.kind for one in taken(dead, sent(wrong)) for letter in one.outcome.letters] == [kind]


def in_connect(row: dict[str, object], types: dict[str, str]) -> bytes:
    fields = [{"field": name, "type": types[name], "optional": True} for name in row]
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": row}).encode()


def in_avro(row: dict[str, object], types: dict[str, str]) -> bytes:
    fields = [{"name": name, "type": ["null", types[name]]} for name in row]
    return written(row, {"type": "record", "name": "Row", "fields": fields}, 950 + len(types))


def in_json(row: dict[str, object], types: dict[str, str]) -> bytes:
    return json.dumps(row).encode()


WRITERS: dict[ValueFormat, Callable[[dict[str, object], dict[str, str]], bytes]] = {
    "json": in_json, "connect-json": in_connect, "avro": in_avro,
}  # fmt: skip
SMALL = RowSchema(pa.schema([pa.field("id", pa.int64(), False), ("u", pa.uuid())]), ("id",), ("id",))


@pytest.mark.parametrize("format_", WRITERS)
def test_a_deleted_row_may_hold_values_that_no_column_takes(format_: ValueFormat) -> None:
    """A connector writes an empty text for a uuid that it does not know and that is NOT NULL."""
    types = {"id": "long" if format_ == "avro" else "int64", "u": "string", "new": "string", "__deleted": "string"}
    gone = {"id": 1, "u": "", "new": None, "__deleted": "true"}
    sent = [WRITERS[format_]({**gone, "__deleted": text}, types) for text in ("true", "false", "TRUE")]
    found = became([*sent, sent[0]], SMALL, format_, EnvelopeRules("debezium-unwrapped"))
    assert [found[0], found[3]] == ["delete", "delete"]
    assert {*found[1:3]} <= {"type", "unknown_column"}


def test_an_empty_vector_stands_for_one_that_is_not_known() -> None:
    columns = {"id": "int32", "v": "fixed_size_list<float32>[2]"}
    rows = [{"id": 1, "v": [1, 2]}, {"id": 1, "v": [], "__deleted": "true"}]
    records = [Sample("t", 0, n, "", b'{"id":1}', json.dumps(row).encode()) for n, row in enumerate(rows)]
    assert table_after(contract_of(columns, envelope="debezium-unwrapped", partitioner="none"), records) == {}


@pytest.mark.parametrize("format_", WRITERS)
def test_heartbeats_of_each_format(format_: ValueFormat) -> None:
    long = "long" if format_ == "avro" else "int64"
    write, rules = WRITERS[format_], EnvelopeRules("debezium-unwrapped")
    beat, row = write({"ts_ms": 5}, {"ts_ms": long}), write({"id": 5}, {"id": long, "": ""})
    more = write({"ts_ms": 5, "more": 5}, {"ts_ms": long, "more": long, "": ""})
    assert became([beat, row, more], SMALL, format_, rules)[:2] == ["heartbeat", {"id": 5, "u": None}]
    decoder = value_decoder(format_, SMALL, Naming(), SCHEMAS, envelope=rules)
    assert decoder.decode([beat], np.zeros(1, np.uint8)).new_fields == {}
    new_fields = decoder.decode([beat, more], np.zeros(2, np.uint8)).new_fields
    assert set(new_fields) == (set() if format_ == "json" else {"ts_ms", "more"})


@pytest.mark.parametrize("value", [None, b"null", b" null\n"])
def test_no_row_is_a_delete(value: bytes | None) -> None:
    """The converter writes the text null, if it has a schema and no row."""
    key = b'{"id":1}'
    row = Sample("accounts", 0, 0, "", key, b'{"id":1,"name":"x"}')
    contract = contract_of(ACCOUNTS, **UNWRAPPED, partitioner="none")
    assert table_after(contract, [row, Sample("accounts", 0, 1, "", key, value)]) == {}
    (letter,) = [
        letter
        for one in taken(
            contract.model_copy(update={"on_bad_record": "dead-letter"}), [Sample("t", 0, 0, "", key, b"0")]
        )
        for letter in one.outcome.letters
    ]
    assert letter.kind == "not_an_object"


def test_a_column_cannot_have_the_name_of_that_member() -> None:
    with pytest.raises(InvalidSchema, match="__deleted"):
        Preparer(contract_of({"id": "int32", "__deleted": "string"}, **UNWRAPPED))


def test_heartbeats_are_passed_over_unless_they_are_rows() -> None:
    beside = samples("postgres_transactions", "heartbeat", "transaction")
    rows = samples("unwrapped_default", "accounts")
    sent = [replace(one, offset=number) for number, one in enumerate([*rows, *beside])]
    strict = contract_of(ACCOUNTS, envelope="debezium-unwrapped")
    assert table_after(strict, sent) == table_after(strict, rows)
    (counts,) = [one.passed_over for one in taken(strict, sent) if one.passed_over]
    assert counts == {"heartbeat": 9, "transaction": 16}
    clock = contract_of({"ts_ms": "int64"}, ("ts_ms",), envelope="debezium-unwrapped")
    row = Sample("clock", 0, 0, "", b'{"ts_ms":3}', b'{"ts_ms":3}')
    here = replace(row, partition=clock.partition_of(row.key or b""))
    assert table_after(clock, [here]) == {'{"ts_ms":3}': {"ts_ms": 3}}


def test_envelopes_are_no_unwrapped_rows_and_say_so() -> None:
    contract = contract_of(ACCOUNTS, envelope="debezium-unwrapped", on_bad_record="dead-letter", on_misrouted="ignore")
    values = [one for one in samples("postgres_json", "accounts") if one.value is not None]
    letters = [letter for one in taken(contract, values) for letter in one.outcome.letters]
    assert len(letters) == len(values)
    assert {letter.kind for letter in letters} == {"wrong_format"}
    assert "Set table.format.envelope to debezium" in letters[0].message


def test_rows_of_mariadb() -> None:
    """The whole old row stands in ``before``; columns come and go."""
    columns = {"id": "int32", "name": "string", "amount": "string", "big": "string", "c": "int32", "label": "string"}
    records = samples("mariadb_json", "accounts")
    kept = [one for one in records if one.step != "my-truncate"]
    nothing = dict.fromkeys(columns)
    expected = {key: {**nothing, **row} for key, row in rows_of(kept, in_envelope).items()}
    assert expected.keys() == {f'{{"id":{n}}}' for n in (2, 3, 4, 5, 21, 22, 23)}
    assert table_after(contract_of(columns), kept) == expected
    assert table_after(contract_of(columns, on_truncate="ignore"), records) == expected
