"""Columns that the envelope of an event fills, against plain Python."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows.schema import PRESENT, RowSchema
from lancewal_core.settings.sections import ValueFormat
from lancewal_core.table.contract import Contract
from lancewal_ingest.decode.framed.frames import key_of_id
from lancewal_ingest.decode.metadata import MetadataColumns
from lancewal_ingest.decode.naming import naming_of
from lancewal_ingest.decode.value_decoder import DecodedValues
from lancewal_ingest.envelopes.envelope import envelope_of
from lancewal_ingest.formats import value_decoder
from lancewal_kafka.records import Records
from tests.ingest.envelopes.test_postgres_with_schemas import ENVELOPE, EVENTS, SCHEMAS, strict_reader_alone, written
from tests.support.debezium import Sample, contract_of, samples, taken
from tests.support.fuzzing import damaged, fuzz

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YEAR_10000 = 253_402_300_800_000
SOURCES = {
    "op": ("string", "envelope.op"),
    "seen": ("timestamp[ms, UTC]", "envelope.ts_ms"),
    "changed": ("timestamp[ms, UTC]", "envelope.source.ts_ms"),
    "lsn": ("int64", "envelope.source.lsn"),
}
ACCOUNTS = {"id": "int32", "name": "string", "amount": "string", "at": "string"}


def contract(columns: dict[str, str], **terms: Any) -> Contract:
    """A table with all of these columns, between the key and other columns of values."""
    types = {name: type_ for name, (type_, _) in SOURCES.items()}
    plain = contract_of({"id": columns["id"], **types, **columns}, format=2, **terms)
    filled = [
        column.model_copy(update={"metadata": SOURCES[column.name][1]}) if column.name in SOURCES else column
        for column in plain.columns
    ]
    return plain.model_copy(update={"columns": tuple(filled)})


def decoded(values: Sequence[bytes], of: Contract, format_: ValueFormat = "json") -> DecodedValues:
    decoder = value_decoder(format_, of.rows, naming_of(of), SCHEMAS, envelope=envelope_of(of))
    return decoder.decode(values, np.zeros(len(values), np.uint8))


def cells(found: DecodedValues, rows: RowSchema) -> dict[int, tuple[Any, ...]]:
    """The columns of the event, by the place of the value."""
    told: dict[int, tuple[Any, ...]] = {}
    for part in found.parts:
        table = pa.table(list(part.columns), schema=rows.columns).select(list(SOURCES)).to_pylist()
        told |= {at: tuple(row.values()) for at, row in zip(part.indexes.tolist(), table, strict=True)}
    return told


def of_event(event: dict[str, Any]) -> tuple[Any, ...]:
    def time(ms: Any) -> datetime | None:
        return EPOCH + timedelta(milliseconds=ms) if type(ms) is int and 0 <= ms < YEAR_10000 else None

    source, lsn = event["source"], event["source"].get("lsn")
    held = type(lsn) is int and -(2**63) <= lsn < 2**63
    return event["op"], time(event.get("ts_ms")), time(source.get("ts_ms")), lsn if held else None


def of_rows(events: Sequence[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    return {at: of_event(event) for at, event in enumerate(events) if event["op"] in ("c", "u", "r")}


@pytest.mark.parametrize(("format_", "sample"), [("json", "postgres_json"), ("connect-json", "postgres_connect_json")])
def test_events_of_a_connector_in_json(format_: ValueFormat, sample: str) -> None:
    values = [one.value for one in samples(sample, "keychg") if one.value is not None]
    events = [json.loads(value) for value in values]
    expected = of_rows([event.get("payload", event) for event in events])
    of = contract({"id": "int64", "v": "int32"})
    found = decoded(values, of, format_)
    assert not found.refused
    assert cells(found, of.rows) == expected
    assert len(expected) > 1
    assert not any(None in told for told in expected.values())


def test_events_of_a_connector_in_avro() -> None:
    values = [event["value"] for event in EVENTS if event["table"] == "accounts"]
    expected = of_rows([read(value) for value in values])
    of = contract({**ACCOUNTS, "amount": "decimal128(12, 2)"})
    found = decoded(values, of, "avro")
    assert not found.refused
    assert cells(found, of.rows) == expected
    assert not any(None in told for told in expected.values())
    assert {told[0] for told in expected.values()} >= {"r", "u"}


def read(value: bytes) -> Any:
    schema = json.loads(SCHEMAS.known(key_of_id(int.from_bytes(value[1:5])))[0].text)
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schema), None)


def test_another_database_has_no_lsn() -> None:
    values = [one.value for one in samples("mariadb_json", "accounts") if one.value is not None]
    of = contract({"id": "int64"}, on_unknown_column="ignore")
    told = cells(decoded(values, of), of.rows)
    assert told == of_rows([json.loads(value) for value in values])
    assert {(changed is None, lsn) for _, _, changed, lsn in told.values()} == {(False, None)}


def test_a_patch_sets_them_and_a_delete_does_not() -> None:
    """A patch has every column but the unavailable one.  The placeholder is no text of these columns."""
    sent = [
        {"before": None, "after": {"id": 1, "s": "u"}, "source": {"lsn": 5}, "op": "u", "ts_ms": 7},
        {"before": {"id": 1}, "after": None, "source": {"lsn": 6}, "op": "d", "ts_ms": 8},
    ]
    of = contract({"id": "int32", "s": "string"}, unavailable_value="u")
    records = [
        Sample("t", 0, at, "", b'{"id":1}', json.dumps(one, separators=(",", ":")).encode())
        for at, one in enumerate(sent)
    ]
    entries = [one.outcome.entry for one in taken(of, records)]
    (batch,) = [entry.rows for entry in entries if entry is not None and entry.rows.num_rows]
    assert [[row[name] for name in of.rows.columns.names] for row in batch.to_pylist()] == [
        [1, "u", EPOCH + timedelta(milliseconds=7), None, 5, None],
        [1, None, None, None, None, None],
    ]
    assert batch[PRESENT].to_pylist() == [bytes([0b011111]), None]


ODD: list[Any] = [
    None, True, False, 1.5, 1.0, "7", [7], {"lsn": 7}, 0, -1, 7, YEAR_10000 - 1, YEAR_10000, 2**53 + 1, 2**63 - 1, 2**63,
    -(2**63), -(2**63) - 1, 2**64, 10**30,
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_member_that_is_no_such_number_is_null(odd: Any) -> None:
    """In the order of Debezium and in another one, which another reader reads."""
    event = {"before": None, "after": {"id": 1}, "source": {"a": 1, "ts_ms": odd, "lsn": odd}, "op": "c", "ts_ms": odd}
    without = {**event, "source": {"lsn_": odd}}
    del without["ts_ms"]
    of = contract({"id": "int32"})
    for one in (event, without):
        orders = [one, dict(reversed(one.items()))]
        found = decoded([json.dumps(order, separators=(",", ":")).encode() for order in orders], of)
        assert not found.refused
        assert cells(found, of.rows) == dict.fromkeys((0, 1), of_event(one))
    assert of_event(without) == ("c", None, None, None)


def test_growth_has_room_for_the_operation() -> None:
    """No byte of a value stands for it in Avro: the growth of the row's record knows nothing of the envelope."""
    rows = contract({"id": "int64"}).rows
    sources = {name: source for name, (_, source) in SOURCES.items()}
    metadata = MetadataColumns(rows, sources, "t")
    record = Records([1], [1], [b"k"], [b"{}"], [None])
    assert (metadata.growth(record, None), metadata.largest(100)) == (1, 1)
    assert MetadataColumns(rows, {"lsn": sources["lsn"]}, "t").growth(record, None) == 0
    assert MetadataColumns(rows, {"lsn": sources["lsn"]}, "t")


def test_types_of_avro() -> None:
    """An integer, or an integer and null in either order, has a number.  Any other type has none."""
    for number, (type_, value, expected) in enumerate(
        [
            ("long", -(2**63), -(2**63)), ("int", 7, 7), (["null", "long"], 7, 7), (["null", "long"], None, None),
            (["int", "null"], 7, 7), (["int", "null"], None, None), ("string", "7", None), ("double", 7.0, None),
            (["null", "string"], "7", None), (["long", "string"], 7, None), (["null", "int", "string"], 7, None),
            (["long"], 7, 7), ("null", None, None), (["null"], None, None),
            ({"type": "long", "logicalType": "timestamp-millis"}, EPOCH + timedelta(milliseconds=7), 7),
        ],
        950,
    ):  # fmt: skip
        source = {"type": "record", "name": "Source", "fields": [{"name": "db", "type": "string"},
                  {"name": "lsn", "type": type_}, {"name": "z", "type": "string"}]}  # fmt: skip
        before, after, _, op = ENVELOPE["fields"]
        schema = {**ENVELOPE, "fields": [before, {"name": "source", "type": source}, op, after]}
        event = {"op": "c", "before": None, "after": {"id": 1, "s": "x"}, "source": {"db": "x", "lsn": value, "z": "y"}}
        of = contract({"id": "int64", "s": "string"})
        sent = written(event, schema, number)
        for doubt in (False, True):
            with strict_reader_alone() if doubt else contextlib.nullcontext():
                found = decoded([sent, sent], of, "avro")
            assert not found.refused
            assert cells(found, of.rows) == dict.fromkeys((0, 1), ("c", None, None, expected)), (type_, doubt)


def test_a_source_that_is_no_record_has_no_numbers() -> None:
    before, after, _, op = ENVELOPE["fields"]
    fields = [before, after, {"name": "source", "type": ["null", "string"]}, op, {"name": "ts_ms", "type": "long"}]
    event = {"op": "r", "before": None, "after": {"id": 1, "s": "x"}, "source": "x", "ts_ms": 7}
    of = contract({"id": "int64", "s": "string"})
    found = decoded([written(event, {**ENVELOPE, "fields": fields}, 980)], of, "avro")
    assert cells(found, of.rows) == {0: ("r", EPOCH + timedelta(milliseconds=7), None, None)}


@fuzz(100)
@given(st.data())
def test_both_readers_of_avro_agree(data: st.DataObject) -> None:
    good = [event["value"] for event in EVENTS if event["table"] == "keychg"]
    values = data.draw(st.lists(st.sampled_from(good) | damaged(good), min_size=1, max_size=5))
    values = [good[0][:5] + value[5:] for value in values]  # of a known schema
    of = contract({"id": "int64", "v": "int32"})
    together = decoded(values, of, "avro")
    with strict_reader_alone():
        alone = [decoded([value], of, "avro") for value in values]
    told = {
        at: one for n, found in enumerate(alone) for at, one in zip([n], cells(found, of.rows).values(), strict=False)
    }
    assert cells(together, of.rows) == told
    assert sorted(one.place for one in together.refused) == [n for n, found in enumerate(alone) if found.refused]
