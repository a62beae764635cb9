"""Debezium's envelope in JSON, as a connector of PostgreSQL has written it: the rows of the source come out."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lancewal_core.errors import BadRecord, ObjectCorrupt
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.settings.sections import Policy
from lancewal_core.table.contract import decode_contract, encode_contract
from lancewal_ingest.append.prepare import Consumed, Preparer, lenient
from lancewal_kafka.headers import HeaderList
from lancewal_kafka.records import Records
from tests.support.debezium import Sample, contract_of, in_envelope, rows_of, samples, table_after, taken

ACCOUNTS = {"id": "int32", "name": "string", "amount": "string", "at": "string"}
LINES = {"region": "string", "no": "int32", "item": "string", "qty": "int32"}
DAY = "2024-01-01T00:00:00.000000Z"


def test_the_rows_of_the_source_come_out() -> None:
    """Inserts, updates, deletes, changed keys, one transaction with all of them, rolled back work, a snapshot in between."""
    records = samples("postgres_json", "accounts")
    expected = {
        '{"id":1}': {"id": 1, "name": "name 1", "amount": "J3Q=", "at": DAY},
        '{"id":2}': {"id": 2, "name": "name 2", "amount": "Tug=", "at": DAY},
        '{"id":3}': {"id": 3, "name": "conflict", "amount": "DOQ=", "at": DAY},
        '{"id":60}': {"id": 60, "name": "kept", "amount": "Alg=", "at": DAY},
        '{"id":70}': {"id": 70, "name": "tx", "amount": "ZA==", "at": DAY},
        '{"id":71}': {"id": 71, "name": "late in T1", "amount": "ZA==", "at": DAY},
    }
    assert rows_of(records, in_envelope) == expected
    assert table_after(contract_of(ACCOUNTS), records) == expected
    typed = table_after(contract_of({**ACCOUNTS, "at": "timestamp[us, UTC]", "amount": "binary"}), records)
    assert typed['{"id":3}'] == {
        "id": 3, "name": "conflict", "amount": b"\x0c\xe4", "at": datetime(2024, 1, 1, tzinfo=UTC),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("table", "columns", "key"),
    [
        ("accounts_full", ACCOUNTS, ("id",)),
        ("keychg", {"id": "int64", "v": "int32"}, ("id",)),
        ("keys_order", {"a": "int32", "b": "string", "v": "int64"}, ("b", "a")),
        ("keys_num", {"id": "string", "v": "int32"}, ("id",)),
        ("keys_uuid", {"id": "string", "v": "int32"}, ("id",)),
        ("Weird_Name", {"Col A": "int32", "x-y": "string", "Ünï": "int32", "select": "int32"}, ("Col A",)),
    ],
)
def test_other_tables(table: str, columns: dict[str, str], key: tuple[str, ...]) -> None:
    """Each record lies where its key belongs, as the producer of Kafka Connect has put it."""
    records = [one for one in samples("postgres_json", table) if one.key is not None]
    assert table_after(contract_of(columns, key), records) == rows_of(records, in_envelope)


def test_a_changed_key_in_either_order_of_arrival() -> None:
    """Old and new key lie in different partitions, which nothing orders."""
    records = [one for one in samples("postgres_json", "lines") if one.step.startswith(("snapshot", "key-change"))]
    changed = [one for one in records if one.step == "key-change-composite"]
    assert [json.loads(one.value)["op"] if one.value else None for one in changed] == ["d", None, "c"]
    before = [one for one in records if one not in changed]
    for order in itertools.permutations(changed):
        if order.index(changed[0]) < order.index(changed[1]):
            found = table_after(contract_of(LINES, ("region", "no")), _in_this_order([*before, *order]))
            assert sorted(found) == ['{"region":"de","no":1}', '{"region":"eu","no":2}']
            assert found['{"region":"de","no":1}']["qty"] == 50


def _in_this_order(records: list[Sample]) -> list[Sample]:
    """Offsets ascend within each partition in the order of the list."""
    return [replace(one, offset=offset) for offset, one in enumerate(records)]


def test_a_tombstone_deletes_alone_and_after_its_event() -> None:
    """Compaction keeps the newest record of a key.  Whatever subset it leaves, the rows are those of all records."""
    records = samples("postgres_json", "accounts")
    expected = rows_of(records, in_envelope)
    last = {one.key: number for number, one in enumerate(records)}
    rng = random.Random(1)
    for _ in range(50):
        left = [one for number, one in enumerate(records) if last[one.key] == number or rng.random() < 0.5]
        assert table_after(contract_of(ACCOUNTS), left) == expected


def test_events_that_come_twice_end_in_the_same_rows() -> None:
    """Kafka Connect died and repeats the last events of each partition: an older state follows a newer one, until it has
    caught up."""
    records = list(samples("postgres_json", "accounts"))
    expected = rows_of(records, in_envelope)
    for back in range(1, len(records)):
        for reached in range(back, len(records)):
            twice = _in_this_order([*records[:reached], *records[reached - back :]])
            assert table_after(contract_of(ACCOUNTS), twice) == expected


def test_heartbeats_transactions_and_messages_are_passed_over() -> None:
    columns = {**ACCOUNTS, "at": "timestamp[us, UTC]"}
    rows = samples("postgres_transactions", "accounts")
    beside = [*samples("postgres_transactions", "heartbeat", "transaction"), *samples("postgres_json", "message")]
    assert len(beside) == 26
    rng = random.Random(3)
    mixed = list(rows)
    for one in beside:
        mixed.insert(rng.randrange(len(mixed)), replace(one, partition=rng.randrange(4)))
    mixed = _in_this_order(mixed)
    expected = table_after(contract_of(columns), _in_this_order(list(rows)))
    assert expected
    assert table_after(contract_of(columns), mixed) == expected
    counts = [one.passed_over for one in taken(contract_of(columns), mixed) if one.passed_over]
    assert counts == [{"heartbeat": 9, "transaction": 16, "message": 1}]


@pytest.mark.parametrize("policy", ["stop", "dead-letter", "ignore"])
@pytest.mark.parametrize("on_truncate", ["stop", "ignore"])
def test_a_truncate_stops_or_is_ignored_and_has_no_letter(policy: Policy, on_truncate: str) -> None:
    records = samples("postgres_json", "lines")
    (at,) = [one for one in records if one.step == "truncate-one"]
    contract = contract_of(LINES, ("region", "no"), on_bad_record=policy, on_truncate=on_truncate)
    found = taken(contract, records)
    assert [one.outcome.letters for one in found] == [()] * 4
    here = found[at.partition].outcome
    assert here.entry is not None
    if on_truncate == "stop":
        assert isinstance(here.stop.error if here.stop else None, BadRecord)
        assert here.entry.next == at.offset
        assert "lancewal table alter --on truncate=ignore" in str(here.stop and here.stop.error)
        assert "dead-letter" not in str(here.stop and here.stop.error)
        here = taken(lenient(contract), records)[at.partition].outcome  # as `lancewal offset reject` takes it
    assert here.entry is not None
    assert (here.stop, here.letters) == (None, ())
    assert [(one.offset, one.kind) for one in here.entry.rejected] == [(at.offset, "truncate")]
    assert not contract.has_letter("truncate")


def test_rows_of_a_snapshot_may_be_skipped() -> None:
    records = samples("postgres_json", "accounts")
    streamed = [one for one in records if one.value is None or json.loads(one.value)["op"] != "r"]
    contract = contract_of(ACCOUNTS, snapshot_rows="skip")
    assert table_after(contract, records) == rows_of(streamed, in_envelope)
    (counts,) = [one.passed_over for one in taken(contract, records) if one.passed_over]
    assert counts == {"snapshot_row": len(records) - len(streamed)}


@pytest.mark.parametrize("table", ["nopk", "nopk_default"])
def test_a_source_table_without_a_key_is_refused_by_name(table: str) -> None:
    """All its records have no key, the one that follows a delete neither."""
    records = samples("postgres_json", table)
    assert {one.key for one in records} == {None}
    contract = contract_of({"a": "int32", "b": "string"}, ("a",), on_bad_record="dead-letter", partitioner="none")
    found = taken(contract, records)
    letters = [letter for one in found for letter in one.outcome.letters]
    assert [letter.kind for letter in letters] == ["key_form"] * len(records)
    assert {letter.message for letter in letters} == {
        "expected a record key, without which no delete can say what it deletes. A source table without a primary key has "
        "none: give it one, or set message.key.columns in the connector"
    }


@pytest.mark.parametrize("value", [b'{"before":null,"after":{"id":1},"source":{"a":1},"op":"c"}', None, b'{"ts_ms":1}'])
@pytest.mark.parametrize("op", [b"upsert", b"delete", b"patch", b"c", None])
def test_no_header_names_an_operation_beside_an_envelope(value: bytes | None, op: bytes | None) -> None:
    contract = contract_of({"id": "int64"}, on_bad_record="dead-letter", partitioner="none")
    headers: list[HeaderList | None] = [[("lancewal.op", op)], [("__debezium.context.taskId", b"0")]]
    batch = Records([0, 1], [0, 0], [b'{"id":1}'] * 2, [value] * 2, headers)
    region = Region("t", TopicId("i"), 0)
    entry, letters, _ = Preparer(contract).prepare(Consumed(region, Position(0), Position(2), batch))
    assert [(letter.offset, letter.kind) for letter in letters] == [(0, "unknown_op")]
    assert entry is not None
    assert entry.rows.column("_offset").to_pylist() == ([] if value == b'{"ts_ms":1}' else [1])


@pytest.mark.parametrize(
    ("terms", "wrong"),
    [
        ({"region_key": (), "key_format": "bytes"}, True),
        ({"region_key": ("region",)}, True),
        ({"region_key": ("no", "region")}, False),
        ({"key_format": "json"}, False),
        ({"key_format": "canonical"}, False),
    ],
)
@pytest.mark.parametrize("envelope", ["debezium", "debezium-unwrapped"])
def test_a_contract_whose_keys_tell_no_delete_is_refused(envelope: str, terms: dict[str, object], wrong: bool) -> None:
    contract = contract_of(LINES, ("region", "no"), format=2, envelope=envelope, **terms)
    if wrong:
        with pytest.raises(ObjectCorrupt, match=r"table.format.envelope is debezium.*all columns of table.primary_key"):
            decode_contract(encode_contract(contract), "x")
    else:
        assert decode_contract(encode_contract(contract), "x") == contract
    plain = contract.model_copy(update={"envelope": "none"})
    assert decode_contract(encode_contract(plain), "x") == plain
