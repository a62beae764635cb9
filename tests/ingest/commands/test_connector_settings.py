"""``lancewal config init --from-debezium``: the proposed settings make a table that has the rows of the source."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
import yaml

from lancewal_core.errors import InvalidInput
from lancewal_core.rows.fold import fold
from lancewal_core.settings.load import Settings
from lancewal_core.table.contract import Contract
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_ingest.commands.proposals import settings_text
from lancewal_ingest.commands.proposals.connector_topic import connector_topic
from lancewal_ingest.commands.proposed_settings import connector_settings
from lancewal_ingest.decode.value_decoder import NO_SCHEMAS, Schemas
from lancewal_kafka.topic import TopicState
from lancewal_tables.define.create import declared_rows
from lancewal_tables.define.register import first_contract
from lancewal_tables.define.topic import FittingTopic
from tests.ingest.commands.test_proposed_settings import checked, with_field_ids
from tests.ingest.envelopes.test_postgres_with_schemas import EVENTS, SCHEMAS, FromFile
from tests.support.debezium import PARTITIONS, SAMPLES, Row, Sample, consumed, in_envelope, samples, unwrapped

PLACEHOLDER = "__debezium_unavailable_value"
BASE64 = base64.b64encode(PLACEHOLDER.encode()).decode()
UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
ENTRY = json.dumps({PLACEHOLDER: PLACEHOLDER}, separators=(",", ":"))
STAND_INS = (PLACEHOLDER, BASE64, ENTRY, [PLACEHOLDER], [BASE64], [UUID], list(PLACEHOLDER.encode()))
NO_KEY, NO_ROW = "message.key.columns", "has a row"
REFUSED = {
    ("mariadb_connect_json", "all_types_precise"): "cannot be keys of a table",  # an unsigned bigint as a decimal
    ("mariadb_json", "nopk"): NO_KEY,
    ("postgres_json", "nopk"): NO_KEY,
    ("postgres_json", "nopk_default"): NO_KEY,
    ("postgres_json", "message"): NO_ROW,
    ("postgres_connect_json", "lines"): NO_ROW,  # a truncate alone
    ("postgres_transactions", "heartbeat"): NO_ROW,
    ("postgres_transactions", "transaction"): NO_ROW,
}
"""Topics without a table, and a word of the reason."""
BAD: Mapping[tuple[str, str], set[str]] = {
    ("mariadb_json", "accounts"): {"truncate"},
    ("postgres_json", "docs"): {"unavailable_value"},
    ("postgres_json", "keys_num"): {"truncate"},
    ("postgres_json", "keys_uuid"): {"truncate"},
    ("postgres_json", "lines"): {"truncate"},
    ("postgres_toast", "vectors"): {"unavailable_value"},
    ("postgres_types", "all_types"): {"type"},
    ("postgres_types", "all_types_string"): {"type"},
}
"""Kinds of records that are no rows in the proposed tables: NaN and infinities are among the types."""


WITH_SCHEMAS = [
    ("mariadb_connect_json", "all_types"),
    ("postgres_connect_json", "accounts"),
    ("postgres_connect_json", "keychg"),
    ("postgres_evolve", "evolve_schema"),
]
"""Topics of Connect's JSON with schemas."""


def topics() -> list[tuple[str, str]]:
    found = []
    for file in sorted(SAMPLES.glob("*.jsonl")):
        if file.stem != "postgres_avro":
            lines = map(json.loads, file.read_text().splitlines())
            found += [(file.stem, table) for table in dict.fromkeys(line["table"] for line in lines)]
    return found


def proposed(
    records: Sequence[Sample], schemas: Schemas | None = None, *, compacted: bool = False, partitions: int = PARTITIONS
) -> str:
    parts = [part for part in consumed(records) if part.records.offsets]
    found = connector_topic(parts, schemas, partitions, placeholder=PLACEHOLDER, compacted=compacted)
    return connector_settings(found, "t", Settings())


def advice(text: str) -> str:
    """The sentences above the settings, on one line."""
    head = text.partition("\ntable:\n")[0]
    return " ".join(line.removeprefix("#").strip() for line in head.splitlines())


def contract_of(settings: Settings, **terms: Any) -> Contract:
    topic = FittingTopic(TopicState("t", "i", PARTITIONS, compacted=False), [0] * PARTITIONS, [])
    contract = first_contract("/t", None, declared_rows(settings), settings.table, topic)
    return with_field_ids(contract).model_copy(
        update={"on_bad_record": "dead-letter", "on_unavailable_value": "dead-letter", "on_truncate": "ignore", **terms}
    )


def taken(contract: Contract, records: Sequence[Sample], schemas: Schemas = NO_SCHEMAS) -> tuple[list[Row], set[str]]:
    """The rows of the table, and the kinds of records that are none."""
    found = Preparer(contract, schemas=schemas).prepare_all(consumed(records))
    entries = [one.outcome.entry for one in found if one.outcome.entry is not None]
    assert [one.outcome.stop for one in found] == [None] * PARTITIONS
    kinds = {rejected.kind for entry in entries for rejected in entry.rejected}
    rows = fold([entry.rows for entry in entries], contract.rows).rows
    return [{name: row[name] for name in contract.rows.table.names} for row in rows.to_pylist()], kinds


def expected(records: Sequence[Sample]) -> dict[str, Row]:
    """The rows of the source, by the text of the key.  An unavailable value stays as it was."""
    rows: dict[str, Row] = {}
    for record in records:
        key = (record.key or b"").decode()
        value = None if record.value is None else json.loads(record.value)
        if value is not None and "payload" in value:
            key, value = json.dumps(json.loads(key)["payload"]), value["payload"]
        if value is not None and not {"ts_ms", "op", "id"} & value.keys():
            continue
        row = (
            None
            if value is None
            else in_envelope(value)
            if "op" in value and "source" in value
            else unwrapped_row(value)
        )
        if row is None:
            rows.pop(key, None)
        else:
            old = rows.get(key, {})
            rows[key] = {name: old.get(name) if cell in STAND_INS else cell for name, cell in row.items()}
    return rows


def unwrapped_row(value: Mapping[str, Any]) -> Row | None:
    """Members of ``add.fields`` are columns too."""
    return None if unwrapped(value) is None else {name: cell for name, cell in value.items() if name != "__deleted"}


def as_json(cell: Any) -> Any:
    """A cell as the text of JSON has it."""
    if isinstance(cell, bytes):
        return base64.b64encode(cell).decode()
    if isinstance(cell, dict):
        return {name: as_json(one) for name, one in cell.items()}
    if isinstance(cell, list):
        pairs = cell and all(isinstance(one, tuple) for one in cell)
        return {name: as_json(one) for name, one in cell} if pairs else [as_json(one) for one in cell]
    return cell


@pytest.mark.parametrize(("file", "table"), [one for one in topics() if one not in WITH_SCHEMAS])
def test_each_topic_of_the_samples(file: str, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = samples(file, table)
    if (file, table) in REFUSED:
        with pytest.raises(InvalidInput, match=REFUSED[file, table]):
            proposed(records)
        return
    contract = contract_of(checked(proposed(records), tmp_path, capsys))
    rows, kinds = taken(contract, records)
    assert kinds == BAD.get((file, table), set())
    if (file, table) in (("postgres_json", "docs"), ("postgres_toast", "toasty")):
        return  # patches, which build on rows that the sample lacks
    wanted = [{name: row.get(name) for name in contract.rows.table.names} for row in expected(records).values()]
    found = list(map(as_json, rows))
    if "unavailable_value" in kinds or "type" in kinds:
        wanted = [row for row in wanted if row in found]
        assert wanted
    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, wanted))


def test_times_of_mysql_are_durations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They go beyond a day, whatever their type is called."""
    records = samples("mariadb_connect_json", "all_types")
    contract = contract_of(checked(proposed(records), tmp_path, capsys))
    (row,), kinds = taken(contract.model_copy(update={"key_forms": tuple(_forms(contract, records))}), records)
    assert kinds == set()
    after = json.loads(records[0].value or b"")["payload"]["after"]
    for name in ("ti0", "ti6"):
        assert row[name] == timedelta(microseconds=after[name])
    assert row["ti0"] < timedelta(days=-34)


def test_schemas_say_the_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Connect's JSON with schemas: each field has the type of its logical name."""
    records = samples("postgres_connect_json", "accounts")
    text = proposed(records)
    table = yaml.safe_load(text)["table"]
    assert table["columns"] == {
        "id": "int32",
        "name": "string",
        "amount": "decimal128(12, 2)",
        "at": "timestamp[us, UTC]",
    }
    assert table["format"] == {"value": "connect-json", "key": "connect-json", "envelope": "debezium"}
    assert "replace.null.with.default=false: otherwise a NULL comes as the DEFAULT, in at." in advice(text)
    contract = contract_of(checked(text, tmp_path, capsys))
    form = next(iter(_forms(contract, records)))
    rows, kinds = taken(contract.model_copy(update={"key_forms": (form,)}), records)
    assert kinds == set()
    wanted = list(expected(records).values())
    assert [(row["id"], row["name"]) for row in rows] == [(row["id"], row["name"]) for row in wanted]
    for row, wish in zip(rows, wanted, strict=True):
        assert row["at"].isoformat().removesuffix("+00:00") == wish["at"].removesuffix(".000000Z")
        assert int(row["amount"].scaleb(2)) == int.from_bytes(base64.b64decode(wish["amount"]), signed=True)


def _forms(contract: Contract, records: Sequence[Sample]) -> list[str]:
    stops = [one.outcome.stop for one in Preparer(contract).prepare_all(consumed(records))]
    return [stop.key_form for stop in stops if stop is not None and stop.key_form is not None]


def value(of: Mapping[str, object], **types: object) -> Row:
    """JSON of Kafka Connect with a schema."""
    fields = [{"field": name, **(kind if isinstance(kind, dict) else {"type": kind})} for name, kind in types.items()]
    return {"schema": {"type": "struct", "fields": fields}, "payload": of}


def test_fields_of_newer_schemas_come_first() -> None:
    """A field that only an older schema has is a column too, since the table reads its records."""
    key = value(KEY, id="int32")
    cut = {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}
    text_of_time = {"type": "string", "name": "io.debezium.time.IsoTime"}
    older = sent(key, value({"id": 1, "old": True}, id="int32", old="boolean", at=cut))
    newer = sent(key, value({"id": 1}, new=text_of_time, id="int64", __deleted="string"), 0, 1)
    text = proposed([older, newer])
    columns = yaml.safe_load(text)["table"]["columns"]
    assert list(columns.items()) == [("new", "string"), ("id", "int64"), ("old", "bool"), ("at", "timestamp[ms, UTC]")]
    assert "new: string    # io.debezium.time.IsoTime" in text
    assert "cuts microseconds off in at" in advice(text)


def test_times_in_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No key is a time.  The column has the text, or the number, of the record."""
    times = {
        "zoned": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        "local": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        "milli": {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
        "clock": {"type": "int64", "name": "io.debezium.time.MicroTime"},
        "day": {"type": "int32", "name": "io.debezium.time.Date"},
    }
    row = {"zoned": "2024-02-29T10:34:56.5Z", "local": 1709210096123456, "milli": 1, "clock": 2, "day": 3}
    records = [sent(value(row, **times), value({**row, "v": 1}, **times, v="int32"))]
    contract = contract_of(checked(proposed(records), tmp_path, capsys), partitioner="none")
    types = [column.type for column in contract.columns]
    assert types == ["string", "int64", "int64", "int64", "date32", "int32"]
    (form,) = _forms(contract, records)
    (found,), kinds = taken(contract.model_copy(update={"key_forms": (form,)}), records)
    assert (found, kinds) == ({**row, "day": date(1970, 1, 4), "v": 1}, set())
    amount = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    with pytest.raises(InvalidInput, match="cannot be keys of a table: amount \\(decimal128"):
        proposed([sent(value({"amount": "AQ=="}, amount=amount), value({"amount": "AQ=="}, amount=amount))])


@pytest.mark.parametrize("key", ["2024-02-29T10:34:56.5Z", "1.50", UUID, 1709210096123456])
def test_no_other_type_is_named_for_a_key_without_a_schema(
    key: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys of JSON hold texts and integers, and the value beside them may mean another type."""
    records = [sent({"id": key}, event({"id": key, "v": key}))]
    text = proposed(records)
    of_key, of_value = (line for line in text.splitlines() if line.startswith(("    id:", "    v:")))
    assert ("#" in of_key, "#" in of_value) == (False, True)
    settings = checked(text, tmp_path, capsys)
    (row,), kinds = taken(contract_of(settings, partitioner="none"), records)
    assert (row, kinds) == ({"id": key, "v": key}, set())


def test_a_bad_event_stops_its_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(proposed([sent(KEY, event(ROW))]), tmp_path, capsys).table.on_bad_record == "stop"


def test_a_changed_key_schema_is_named() -> None:
    assert "Record keys have 2 schemas" in advice(proposed(samples("postgres_connect_json", "keychg")))


@pytest.mark.parametrize("table", ["accounts", "accounts_full", "lines", "keychg", "docs", "nopk", "message"])
def test_events_in_avro(table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys are those of JSON: the samples of Avro have none."""
    events = [event for event in EVENTS if event["table"] == table]
    names = {"lines": ("region", "no")}.get(table, ("id",))
    records = []
    for offset, event in enumerate(events):
        row = event["after"] or event["before"] or {}
        key = json.dumps({name: row.get(name) for name in names}, separators=(",", ":")).encode()
        records.append(Sample(table, 0, offset, "", key if row and table != "nopk" else None, event["value"]))
    if table in ("nopk", "message"):
        with pytest.raises(InvalidInput, match=NO_KEY if table == "nopk" else NO_ROW):
            proposed(records, SCHEMAS)
        return
    text = proposed(records, SCHEMAS)
    contract = contract_of(checked(text, tmp_path, capsys), partitioner="none")
    rows, kinds = taken(contract, records, SCHEMAS)
    assert kinds <= {"truncate"}
    wanted: dict[bytes | None, Row] = {}
    for record, event in zip(records, events, strict=True):
        if event["op"] == "d":
            wanted.pop(record.key, None)
        elif event["op"] in "cur" and table != "docs":  # an update of docs has unavailable values
            wanted[record.key] = {name: event["after"].get(name) for name in contract.rows.table.names}
    found = [{name: as_text(cell) for name, cell in row.items()} for row in rows]
    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, wanted.values()))
    assert ("the DEFAULT in at" in advice(text)) == table.startswith("accounts")


def test_keys_in_avro(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The registry says the columns of keys.  It may not know a schema."""
    schemas = FromFile()
    schemas.add(900, {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]})
    value = next(one["value"] for one in EVENTS if one["table"] == "accounts")
    records = [Sample("t", 0, 0, "", b"\x00\x00\x00\x03\x84\x02", value)]
    text = proposed(records, schemas)
    table = checked(text, tmp_path, capsys).table
    assert (table.format.key, table.primary_key, table.partitioner) == ("avro", ("id",), "murmur2")
    for key, data in ((b"\x00\x00\x00\x03\x85\x02", value), (records[0].key, b"\x00\x00\x00\x03\x86")):
        with pytest.raises(InvalidInput, match=r"registry does not know schema id-90[12]"):
            proposed([Sample("t", 0, 0, "", key, data)], schemas)


def as_text(cell: object) -> object:
    """A cell as the samples of Avro have it."""
    if isinstance(cell, datetime):
        return f"{cell:%Y-%m-%dT%H:%M:%S.%fZ}"
    return str(cell) if isinstance(cell, Decimal) else cell


def sent(key: object, value: object, partition: int = 0, offset: int = 0) -> Sample:
    """A record; texts are sent as they are."""

    def data(of: object) -> bytes | None:
        return of if isinstance(of, bytes | None) else json.dumps(of, separators=(",", ":")).encode()

    return Sample("t", partition, offset, "", data(key), data(value))


def event(row: object, op: str = "c", connector: str = "postgresql", before: object = None, **members: object) -> Row:
    source = {"connector": connector, "schema": "public", "table": "t"}
    return {"before": before, "after": row, "source": source, "op": op, "ts_ms": 1, **members}


KEY, ROW = {"id": 1}, {"id": 1, "name": "x"}


@pytest.mark.parametrize(
    ("records", "says"),
    [
        ([], "no record yet"),
        ([sent(KEY, None)], r"none of the newest 1 record has a row \(1 tombstone\)"),
        ([sent(KEY, event(None, "d", before=KEY)), sent(KEY, None, 0, 1)], "1 tombstone, 1 delete|1 delete, 1 tombstone"),
        ([sent({"serverName": "s"}, {"ts_ms": 1})], "1 beside rows"),
        ([sent(None, event(None, "t"))], "1 truncate"),
        ([sent(KEY, b'{"before":null,"after":{"id":1')], "1 unreadable"),
        ([sent(KEY, b"[1]"), sent(KEY, b"\xff", 0, 1), sent(KEY, b"", 0, 2)], "3 unreadable"),
        ([sent(None, event(ROW))], NO_KEY),
        ([sent(None, None), sent(KEY, event(ROW), 0, 1)], NO_KEY),
        ([sent(KEY, event(ROW, connector="oracle"))], "connector of Oracle"),
        ([sent(KEY, event("{}", connector="mongodb"))], "MongoDB"),
        ([sent(KEY, {"database": "d", "table": "t", "type": "insert", "data": ROW})], "t-0-0.*Maxwell"),
        ([sent(KEY, {"database": "d", "table": "t", "type": "INSERT", "data": [ROW], "isDdl": False})], "Canal"),
        ([sent(KEY, {"table": "t", "op_type": "I", "pos": "1", "after": ROW})], "GoldenGate"),
        ([sent(KEY, event(ROW)), sent(KEY, ROW, 0, 1)], "several forms.*plain rows.*t-0-1.*envelope.*t-0-0"),
        ([sent(KEY, event(ROW)), sent(KEY, {"schema": {"type": "struct", "fields": [{"field": "id", "type": "int32"}]},
                                          "payload": {"id": 1}}, 0, 1)], "several formats: connect-json.*json"),
        ([sent(KEY, event(ROW)), sent({"name": "x"}, event(ROW), 0, 1)], "keys of several forms.*name.*id"),
        ([sent({"no": 1}, event(ROW))], r"fields that the row lacks \(no\), so it names no row"),
        ([sent({"a.b": 1}, event({"a.b": 1, "x": 1}))], r"cannot be keys of a table: a\.b"),
        ([sent({"schema": {"type": "struct", "fields": []}, "payload": {}}, event(ROW))], "record key has no field, so"),
        ([sent({"id": [1]}, event(ROW))], "record key is no struct"),
        ([sent(b"1", event(ROW))], "record key is no struct"),
        ([sent(b"{", event(ROW))], "record key is no struct"),
        ([sent(KEY, b"\x00\x00\x00\x00\x07x")], r"registry\.url is not set"),
        ([sent(KEY, b"\x00" * 8 + b"\x07x")], "the value .*id of 8 bytes.*as-confluent"),
        ([sent(b"\x00" * 8 + b"\x07x", None)], "the record key .*id of 8 bytes.*as-confluent"),
        ([replace(sent(KEY, b"\x02x"), headers=(("apicurio.value.globalId", b"1"),))], "header.*as-confluent"),
    ],
    ids=lambda given: given[:24] if isinstance(given, str) else "",
)  # fmt: skip
def test_a_topic_without_a_table_says_why(records: list[Sample], says: str) -> None:
    with pytest.raises(InvalidInput, match=f"(?s){says}"):
        proposed(records)


def test_odd_names_and_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "id": 1, "Id": 1709210096789, "mix": 1.5,
        "a b": "x", "ü\x85": 3, "Ünï\n": 3, "no.1": 4, "": 5, "_rowid": 6, "uri: x #": None, "big": 1 << 63,
        "two": "x", "deep": [[[1.5, None], []]], "__deleted": "false", "__op": "c", "map": {"k": "v", "n": None},
    }  # fmt: skip
    text = proposed([sent(KEY, row), sent(KEY, {**row, "two": 1, "mix": "x", "old": True}, 0, 1)])
    assert yaml.safe_load(text)["table"]["columns"] == {
        "id": "int64", "Id_2": {"type": "int64", "field": "Id"}, "a b": "string", "ü\x85": "int64", "__op": "string",
        "Ünï\n": "int64", "field_rowid": {"type": "int64", "field": "_rowid"}, "uri: x #": "string", "old": "bool",
        "deep": "list<list<list<float64>>>", "map": "map<string, string>",
    }  # fmt: skip
    assert "field: Id    # if it is a time in milliseconds" in text
    for name in ("no.1", "", "big", "two", "mix"):
        assert f"No column for field {name}:" in text
    assert "two: its values have several types" in text
    settings = checked(text, tmp_path, capsys)
    assert settings.table.on_unknown_column == "ignore"
    rows, kinds = taken(contract_of(settings, partitioner="none"), [sent(KEY, row)])
    assert (kinds, rows[0]["Ünï\n"], rows[0]["field_rowid"]) == (set(), 3, 6)


def in_schemas(row: object, columns: object, **members: object) -> dict[str, object]:
    """An event in Connect's JSON with schemas, whose rows have these fields."""
    of_row = {"field": "after", "type": "struct", "optional": True, "fields": columns}
    source = {"field": "source", "type": "struct", "fields": []}
    schema = {"type": "struct", "fields": [of_row, source, {"field": "op", "type": "string"}], **members}
    return {"schema": schema, "payload": {"after": row, "source": {}, "op": "c"}}


IDS = [{"field": "id", "type": "int64"}]
NO_STRUCT = [{"field": "after", "type": "int64", "fields": 5}, {"field": "source", "type": "struct", "fields": []}]


def test_a_name_of_a_type_ends_no_comment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "io.debezium.time.X\nevil: int64\u2028worse: int64 \0"
    text = proposed([sent(KEY, in_schemas(ROW, [*IDS, {"field": "name", "type": "string", "name": name}]))])
    assert yaml.safe_load(text)["table"]["columns"] == {"id": "int64", "name": "string"}
    checked(text, tmp_path, capsys)


@pytest.mark.parametrize(
    "value",
    [
        in_schemas(ROW, IDS, fields=5), in_schemas(ROW, IDS, fields=True), in_schemas(ROW, IDS, fields=[5, None]),
        in_schemas(ROW, 5), in_schemas(ROW, IDS, fields=[*NO_STRUCT, {"field": "op", "type": "string"}]),
        b'{"schema":' + b'{"a":' * 500 + b"1" + b"}" * 500 + b',"payload":{}}',
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_schemas_that_are_none(value: object) -> None:
    with pytest.raises(InvalidInput, match="schema"):
        proposed([sent(KEY, value)])
    with pytest.raises(InvalidInput, match="schema"):
        proposed([sent(value if isinstance(value, bytes) else {**in_schemas({}, 5), "payload": {"id": 1}}, event(ROW))])


def test_a_partition_of_aborted_records_tells_nothing() -> None:
    """A consumer reads none of them, so nobody knows whether a delete lies before them."""
    moved = replace(sent(KEY, ROW, 0, 9), headers=(("__debezium.oldkey", b'{"id":7}'),))
    nothing, part = consumed([moved])[3], consumed([moved])[0]
    assert not nothing.records.offsets

    def of(*parts: Consumed) -> object:
        return connector_topic(parts, None, len(parts), placeholder=PLACEHOLDER, compacted=False)

    late = replace(part, records=replace(part.records, timestamps=[20_000], offsets=[0]))
    with pytest.raises(InvalidInput, match="loses deletes"):
        of(late)
    assert of(late, nothing)


def test_columns_beyond_the_limit_get_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find a name takes the longer, the more columns there are."""
    named = Mock(side_effect=settings_text._other_name)
    monkeypatch.setattr(settings_text, "_other_name", named)
    monkeypatch.setattr("lancewal_core.rows.schema.COLUMNS_MAX", 5)
    names = ["".join(c.upper() if n >> at & 1 else c for at, c in enumerate("columns")) for n in range(100)]
    columns, left_out = settings_text.columns_for([(name, pa.int64()) for name in names])
    assert (len(columns), len(left_out)) == (5, 95)
    assert named.call_count <= 5


def test_a_key_with_spaces_is_any_json() -> None:
    assert "key: json\n" in proposed([sent(b'{"id": 1}', event(ROW))])
    assert "key: json-compact\n" in proposed([sent(KEY, event(ROW))])


def test_thousands_of_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = proposed([sent(KEY, {**KEY, **{f"c{n}": n for n in range(5000)}})])
    assert len(checked(text, tmp_path, capsys).table.columns) == 4096
    assert "No column for 805 further fields" in text


@pytest.mark.parametrize(
    ("values", "type_", "remark"),
    [
        (["2024-02-29T10:34:56.123456Z"], "string", "timestamp[us, UTC]"),
        (["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None], "string", "uuid"),
        (["1.25", "-3", PLACEHOLDER], "string", "decimal128(38, 2)"),
        (["AJY=", BASE64], "string", "decimal.handling.mode=string"),
        (["1.25", "x"], "string", ""),
        ([PLACEHOLDER], "string", ""),
        ([1709210096123456, None], "int64", "epoch_us"),
        ([1709210096789], "int64", "epoch_ms"),
        ([0, 1709210096789], "int64", ""),
        ([1.5, 2], "float64", "double loses digits"),
        ([1.5, "NaN", 2], "float64", "NaN and infinity are bad records"),
        ([{"scale": 5, "value": "BMsv"}], "struct<scale: int32, value: binary>", "one decimal column"),
        ([[1.0, 2.5, -3.0], [0.5, 0.5, 0.5]], "list<float64>", "fixed_size_list<float32>[3]"),
        ([[1.0], [0.5, 0.5]], "list<float64>", ""),
        ([[], None], "list<string>", "no list has an item"),
        ([None], "string", "give the column its type"),
        ([True], "bool", ""),
        ([{"x": 1}, {"y": "t"}], "struct<y: string, x: int64>", ""),
    ],
    ids=str,
)
def test_values_without_a_schema(values: list[object], type_: str, remark: str) -> None:
    """The type holds every value; a remark says which other type the values may mean."""
    text = proposed([sent({"id": n}, event({"id": n, "v": value}), 0, n) for n, value in enumerate(values)])
    assert yaml.safe_load(text)["table"]["columns"]["v"] == type_
    (line,) = [line for line in text.splitlines() if line.startswith("    v:")]
    assert remark in line
    assert ("#" in line) == bool(remark)


def test_what_the_records_show_about_the_connector() -> None:
    """Each sentence stands where records ask for it, and not where they show that it is done."""
    lists = event({"id": 1, "tags": ["a"]})
    assert "REPLICA IDENTITY FULL" in advice(proposed([sent(KEY, lists)]))
    full = event({"id": 1, "tags": ["a"]}, "u", before={"id": 1, "tags": []})
    assert "REPLICA IDENTITY FULL" not in advice(proposed([sent(KEY, lists), sent(KEY, full, 0, 1)]))
    assert "REPLICA IDENTITY FULL" not in advice(
        proposed([sent(KEY, event({"id": 1, "tags": ["a"]}, connector="mysql"))])
    )
    assert "toast: never" in advice(proposed([sent(KEY, {"id": 1, "tags": ["a"]})]))
    other = event(ROW)
    other["source"] = {**other["source"], "table": "u"}
    assert "several tables (public.t, public.u)" in advice(proposed([sent(KEY, event(ROW)), sent(KEY, other, 0, 1)]))
    assert "not with sqlserver" in advice(proposed([sent(KEY, event(ROW, connector="sqlserver"))]))
    assert "1 record can be read by no format" in advice(proposed([sent(KEY, event(ROW)), sent(KEY, b"{", 0, 1)]))
    assert "TRUNCATE" in advice(proposed([sent(KEY, event(ROW))]))


def test_a_compacted_topic_has_no_patches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [sent(KEY, event(ROW)), sent({"id": 2}, event(None, "d", before={"id": 2}), 0, 1)]
    text = proposed(records, compacted=True)
    assert checked(text, tmp_path, capsys).table.patches is False
    assert "REPLICA IDENTITY FULL" in advice(text)
    assert "tombstones.on.delete=true" in advice(text)
    assert "tombstones.on.delete" not in advice(proposed([*records, sent({"id": 2}, None, 0, 2)], compacted=True))
    assert "patches" not in proposed(records)


def test_a_mode_that_loses_deletes() -> None:
    """The row of a new key shows it, if the delete of the old key must be among the records.  Otherwise a sentence asks."""
    new = replace(sent({"id": 2}, {"id": 2}, 0, 60_000), headers=(("__debezium.oldkey", b'{"id":1}'),))
    first, delete = sent({"id": 3}, {"id": 3}), sent(KEY, None, 1, 0)
    with pytest.raises(InvalidInput, match=r"t-0-60000: .*handling\.mode=drop"):
        proposed([first, sent(KEY, KEY, 1, 0), new], partitions=2)
    for records, partitions, compacted in (
        ([first, delete, new], 2, False),
        ([first, sent(KEY, KEY, 1, 0), new], 3, False),  # a partition was not read
        ([first, sent(KEY, KEY, 1, 59_000), new], 2, False),  # the partition may begin after the delete
        ([first, sent(KEY, KEY, 1, 0), new], 2, True),  # compaction may have removed the delete
    ):
        text = proposed(records, partitions=partitions, compacted=compacted)
        assert ("must not be drop" in advice(text)) == (delete not in records)
    assert "must not be drop" not in advice(proposed([sent(KEY, {"id": 1, "__deleted": "false"})]))


def test_another_placeholder_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings.model_validate({"table": {"format": {"envelope": "debezium", "unavailable_value": "--"}}})
    found = connector_topic(consumed([sent(KEY, event(ROW))])[:1], None, 1, placeholder="--", compacted=False)
    assert checked(connector_settings(found, "t", settings), tmp_path, capsys).table.format.unavailable_value == "--"
