"""A partition stops for a key's form if the record belongs there, and nothing before the record stops the partition."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.record_keys.key_form import KeyForm
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.table.contract import Column, Contract
from lancewal_core.table.drain import Drain
from lancewal_core.wal.entry import NoRowYet
from lancewal_ingest.append.prepare import Consumed, PrepareOutcome, Preparer
from lancewal_ingest.registry.asked import AskedSchemas
from lancewal_kafka.headers import HeaderList
from lancewal_kafka.records import Records
from tests.support.fake_registry import JSON, FakeRegistry

CONTRACT = Contract(
    format=2, table_uuid="u", topic="t", topic_id="i", partitions=2, primary_key=("k",), region_key=("k",), start=(0, 0),
    key_format="json-schema", value_format="json", on_bad_record="dead-letter",
    columns=(Column(name="k", type="int64", field_ids=(0,)), Column(name="a", type="string", field_ids=(1,))),
)  # fmt: skip
Sent = tuple[bytes, bytes | None, HeaderList | None]


def key_of(k: int, schema: int) -> bytes:
    return b"\0" + schema.to_bytes(4) + json.dumps({"k": k}).encode()


def of(schema: int, partition: int = 0, *, delete: bool = False) -> Sent:
    """A good record whose key has this schema, and belongs to this partition."""
    k = next(k for k in range(99) if partition_of(key_of(k, schema), 2) == partition)
    return key_of(k, schema), None if delete else json.dumps({"k": k}).encode(), None


BAD: Sent = (key_of(0, 7), b"{", None)


def prepared(
    sent: Sequence[Sent],
    *forms: str,
    drain: Drain | None = None,
    no_row_yet: NoRowYet | None = None,
    **terms: object,
) -> PrepareOutcome:
    """What becomes of the records in partition 0; ``forms`` are those that the contract lists."""
    contract = CONTRACT.model_copy(update={"key_forms": tuple(map(KeyForm, forms)), **terms})
    count = len(sent)
    records = Records(list(range(count)), [0] * count, *(list(column) for column in zip(*sent, strict=True)))
    consumed = Consumed(Region("t", TopicId("i"), 0), Position(0), Position(count), records, no_row_yet=no_row_yet)
    return Preparer(contract, drain, AskedSchemas(FakeRegistry(id_7=JSON, id_8=JSON))).prepare(consumed)


def stopped(outcome: PrepareOutcome) -> tuple[str, object, str | None] | None:
    """The kind of the error, its offset, and the form that the partition stops for."""
    stop = outcome.stop
    return None if stop is None else (stop.error.kind, stop.error.where.get("offset"), stop.key_form)


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("forms", [(), ("id-7",)])
def test_a_misrouted_record_of_another_form_is_misrouted(forms: tuple[str, ...], delete: bool) -> None:
    stray, good = of(8, 1, delete=delete), of(8, delete=delete)
    outcome = prepared([stray, good], *forms, on_misrouted="dead-letter")
    assert [(letter.offset, letter.kind) for letter in outcome.letters] == [(0, "misrouted")]
    assert outcome.letters[0].message == "the record's key belongs to partition 1 of 2"
    assert stopped(outcome) == ("key_form_changed", 1, "id-8")
    assert stopped(prepared([stray, good], *forms)) == ("misrouted", 0, None)
    outcome = prepared([stray, of(7)], "id-7", on_misrouted="ignore")
    assert outcome.entry is not None
    assert (outcome.stop, outcome.letters) == (None, ())
    assert [(one.offset, one.kind) for one in outcome.entry.rejected] == [(0, "misrouted")]
    assert outcome.entry.row_count == 1


def test_records_lie_where_producers_chose() -> None:
    assert stopped(prepared([of(8, 1)], "id-7", partitioner="none")) == ("key_form_changed", 0, "id-8")


def test_a_record_after_the_one_that_stops_names_no_form() -> None:
    assert stopped(prepared([BAD, of(8)], on_bad_record="stop")) == ("bad_record", 0, None)
    assert stopped(prepared([of(8, 1), of(8)])) == ("misrouted", 0, None)
    framed: Sent = (of(7)[0], b"\0\0\0\0\7{}", None)
    outcome = prepared([framed, of(8)], no_row_yet=NoRowYet())
    assert stopped(outcome) == ("wrong_format", 0, None)


def test_a_record_before_the_one_that_stops_names_the_form() -> None:
    assert stopped(prepared([of(8), BAD], on_bad_record="stop")) == ("key_form_changed", 0, "id-8")
    assert stopped(prepared([of(8), of(8, 1)])) == ("key_form_changed", 0, "id-8")


def test_a_bad_record_names_no_form() -> None:
    key, value, _ = of(8)
    assert prepared([(key, value, [("lancewal.op", b"zz")])]).stop is None
    assert prepared([(key, b'{"k": 99}', None)]).stop is None


def test_a_drain_ends_before_a_record_of_another_form() -> None:
    """By the topic's number of partitions the record lies right.  It is no misrouted one, and names no form."""
    k = next(k for k in range(99) if [partition_of(key_of(k, 8), n) for n in (2, 3)] == [1, 0])
    moved: Sent = (key_of(k, 8), None, None)
    drain = Drain(contract_version=1, partitions=3, to=(9, 9), write_id="w")
    outcome = prepared([of(7), moved], "id-7", drain=drain, on_misrouted="dead-letter")
    assert outcome.stop is not None
    assert (outcome.stop.error.kind, outcome.stop.new_from) == ("partition_count_changed", 1)
    assert (outcome.letters, outcome.stop.key_form) == ((), None)
