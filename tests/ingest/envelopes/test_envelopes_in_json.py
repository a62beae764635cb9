"""Envelopes in any JSON: order of members, blanks, what is missing, twice or of another kind, and other envelopes."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows.schema import RowSchema
from lancewal_ingest.decode.outcomes import KINDS
from lancewal_ingest.decode.value_decoder import ValueDecoder
from lancewal_ingest.envelopes import json_events
from lancewal_ingest.envelopes.debezium_json import read
from lancewal_ingest.envelopes.envelope import EnvelopeRules
from lancewal_ingest.formats import value_decoder
from tests.support.debezium import Sample, contract_of, samples, taken
from tests.support.fuzzing import damaged, fuzz

ROWS = RowSchema(pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string())]), ("id",), ("id",))
KEY = [pa.field("region", pa.string(), False), pa.field("no", pa.int32(), False)]
LINES = RowSchema(pa.schema([*KEY, ("item", pa.string()), ("qty", pa.int32())]), ("region", "no"), ("region", "no"))
SOURCE = {"version": "3.5.0.Final", "table": "t"}


def became(*values: bytes, of: ValueDecoder | None = None) -> list[str]:
    """What became of each value: its row, ``delete``, the kind of what is passed over, or of the refusal."""
    decoder = of or value_decoder("json", ROWS, envelope=EnvelopeRules("debezium"))
    found = decoder.decode(values, np.zeros(len(values), np.uint8))
    texts = {one.place: one.kind for one in found.refused}
    texts |= {int(at): "delete" for at in found.deletes}
    texts |= {int(at): kind for kind, passed in found.passed_over.items() for at in passed}
    for part in found.parts:
        for at, *row in zip(part.indexes.tolist(), *(column.to_pylist() for column in part.columns), strict=True):
            texts[at] = repr(tuple(row))
    assert sorted(texts) == list(range(len(values)))
    return [texts[at] for at in range(len(values))]


def event(op: object = "c", after: object = None, before: object = None, **members: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1, **members}


ROW = {"id": 1, "s": 'a},"source":{"'}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(event(after=ROW), separators=(",", ":")),
        json.dumps(event(after=ROW)),
        json.dumps(dict(reversed(event(after=ROW).items()))),
        " \n" + json.dumps(event(after=ROW), indent=2) + "\n",
        json.dumps(event(after=ROW, before={"id": 1, "after": 2, "op": "d"}), separators=(",", ":")),
        json.dumps({"before": None, "after": ROW, "more": {}, "source": SOURCE, "op": "c"}, separators=(",", ":")),
        json.dumps({"before": None, "after": ROW, "source": SOURCE, "op": "c", "more": {"op": "d", "source": {"a": 1}}},
                   separators=(",", ":")),
        json.dumps({"before": None, "after": ROW, "source": {**SOURCE, "op": "d", "after": 1}, "op": "c"},
                   separators=(",", ":")),
        json.dumps(event(after=ROW), separators=(",", ":")).replace('"after"', '"\\u0061fter"'),
    ],
)  # fmt: skip
def test_members_may_stand_in_any_order(text: str) -> None:
    assert became(text.encode()) == ['(1, \'a},"source":{"\')']


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (event("x", ROW), "envelope"),
        (event("c"), "envelope"),
        (event("u", 7), "envelope"),
        (event("r", [ROW]), "envelope"),
        (event("c", ROW, source=None), "wrong_format"),
        (event(1, ROW), "wrong_format"),
        (event("C", ROW), "envelope"),
        (event(["c"], ROW), "wrong_format"),
        (event({}, ROW), "wrong_format"),
        (event("c", ROW, source=[]), "wrong_format"),
        (event("t"), "truncate"),
        (event("m"), "message"),
        (event("d", ROW), "delete"),
        (event("d"), "delete"),
        (event("c", {"id": None}), "missing_key"),
        (event("c", {"id": 1, "more": 1}), "unknown_column"),
        (event("c", {"id": "x"}), "type"),
        ({"ts_ms": 1}, "heartbeat"),
        ({"ts_ms": 1, "ts_us": 1, "ts_ns": 1}, "heartbeat"),
        ({"ts_ms": 1, "id": 1}, "wrong_format"),
        ({"status": "BEGIN", "id": "1:2", "event_count": None, "data_collections": None, "ts_ms": 1}, "transaction"),
        ({"status": "open", "id": 1}, "wrong_format"),
        ({"id": 1, "s": "a"}, "wrong_format"),
        ({}, "wrong_format"),
        ([], "not_an_object"),
        (None, "not_an_object"),
    ],
    ids=str,
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_what_is_no_row(value: object, kind: str, separators: tuple[str, str]) -> None:
    good = json.dumps(event("c", {"id": 2, "s": None}), separators=(",", ":")).encode()
    text = json.dumps(value, separators=separators).encode()
    assert became(good, text, good) == ["(2, None)", kind, "(2, None)"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"", "not_json"),
        (b"\xff", "not_json"),
        (b'{"before":null,"after":{"id":1}', "not_json"),
        (b'{"before":null,"after":{"id":1},"source":{"a":1},"op":"c"} x', "not_json"),
        (b'{"before":null,"after":{"id":1}},"source":{"a":1},"op":"c"}', "not_json"),
        (b'{"before":{,"after":{"id":1},"source":{"a":1},"op":"c"}', "not_json"),
        (b'{"before":null,"after":{"id":1},"source":{"a":1},"op":"c","op":"d"}', "duplicate_member"),
        (b'{"before":null,"after":{"id":1},"source":{"a":1},"op":"c","after":{"id":2}}', "duplicate_member"),
        (b'{"before":null,"after":{"id":1},"source":{"a":1},"op":"c","op" :"d"}', "duplicate_member"),
        (b'{"before":null,"after":{"id":1},"source":{"a":1},"op":"c","\\u006fp":"d"}', "duplicate_member"),
        (b'{"before":null,"after":{"id":1},"source":{"a":1},"op":"c","source" :{"b":2}}', "duplicate_member"),
        (b'{"before":null,"after":{"id":1,"id":2},"source":{"a":1},"op":"c"}', "duplicate_member"),
        (b'{"before":null,"after":{"id":1,"id":2}, "source":{"a":1},"op":"c"}', "duplicate_member"),
        (b'{"before":null,"after":2","a":1},"source":{"a":1},"op":"d"}', "not_json"),
        (b'{"before":null,"after":{"id":1,},"source":{"a":1},"op":"t"}', "not_json"),
        (b'{"before":null,"after":NaN,"source":{"a":1},"op":"c"}', "not_json"),
        (b"[" * 200_000, "too_deep"),
    ],
)
def test_damaged_envelopes(text: bytes, kind: str) -> None:
    assert became(text) == [kind]


def test_a_null_with_a_blank_is_no_old_row() -> None:
    """So a null of a list may be a value that did not change."""
    rows = RowSchema(pa.schema([pa.field("id", pa.int64(), False), ("v", pa.list_(pa.int32()))]), ("id",), ("id",))
    text = b'{"before":null,"after":{"id":1,"v":null},"source":{"a":1},"op":"u"}'
    values = [text, text.replace(b"null,", b"null ,", 1), text.replace(b"null,", b" null,", 1)]
    of = value_decoder("json", rows, envelope=EnvelopeRules("debezium"))
    assert [became(value, of=of) for value in values] == [["unavailable_value"]] * 3
    assert became(text.replace(b"null,", b'{"id":1} ,', 1), of=of) == ["(1, None)"]


@fuzz(200)
@given(st.data())
def test_both_looks_see_the_same(data: st.DataObject) -> None:
    """Whatever the quick look finds, the value becomes what the strict look alone makes of it."""
    written = [one.value for one in samples("postgres_json", "lines") if one.value is not None]
    value = data.draw(st.sampled_from(written) | damaged(written))
    decoder = value_decoder("json", LINES, envelope=EnvelopeRules("debezium", data.draw(st.booleans())))
    quick = became(value, of=decoder)
    with mock.patch.object(json_events, "read", return_value=None):
        strict = became(value, of=decoder)
    assert quick == strict or (quick[0] in KINDS and strict[0] in KINDS)


def test_of_real_values_none_needs_the_strict_look() -> None:
    values = [one.value for one in samples("postgres_json", "accounts", "lines", "docs", "accounts_full") if one.value]
    values += [one.value for one in samples("mariadb_json", "accounts", "all_types") if one.value]
    assert len(values) > 60
    assert [value for value in values if read(value) is None] == []


OTHERS: dict[str, dict[str, object]] = {
    "Maxwell": {"database": "shop", "table": "t", "type": "insert", "ts": 1, "xid": 2, "data": {"id": 1}},
    "Canal": {
        "data": [{"id": "1"}],
        "database": "shop",
        "table": "t",
        "type": "INSERT",
        "isDdl": False,
        "es": 1,
        "ts": 1,
    },
    "Oracle GoldenGate": {
        "table": "S.T",
        "op_type": "I",
        "op_ts": "2026",
        "current_ts": "2026",
        "pos": "1",
        "after": {"id": 1},
    },
}


@pytest.mark.parametrize("envelope", ["none", "debezium", "debezium-unwrapped"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_envelopes_are_named(name: str, envelope: str) -> None:
    value = json.dumps(OTHERS[name]).encode()
    contract = contract_of({"id": "int64", "s": "string"}, on_bad_record="dead-letter", envelope=envelope)
    (letter,) = [x for one in taken(contract, [Sample("t", 0, 0, "", b'{"id":1}', value)]) for x in one.outcome.letters]
    assert letter.kind == "wrong_format"
    assert f"{name}'s envelope" in letter.message
    rows = {"id": "int64", "table": "string", "type": "string", "pos": "string"}
    honest = json.dumps({**OTHERS[name], "id": 1}).encode()
    contract = contract_of(
        rows, on_bad_record="dead-letter", envelope="none", on_unknown_column="ignore", on_misrouted="ignore"
    )
    assert not [x for one in taken(contract, [Sample("t", 0, 0, "", b'{"id":1}', honest)]) for x in one.outcome.letters]


def test_plain_rows_and_other_formats_are_named() -> None:
    contract = contract_of({"id": "int64", "s": "string"}, on_bad_record="dead-letter")
    sent = {
        b'{"id": 1}': "set it to debezium-unwrapped",
        b"\0\0\0\0\7abcdef": "Confluent's wire format",
        b'{"schema": {"type": "struct"}, "payload": {"op": "c", "source": {}, "after": {"id": 1}}}': "JSON of Kafka "
        "Connect with a schema (schema and payload), and in it Debezium's envelope",
    }
    records = [Sample("t", 0, at, "", b'{"id":1}', value) for at, value in enumerate(sent)]
    letters = [letter for one in taken(contract, records) for letter in one.outcome.letters]
    assert [letter.kind for letter in letters] == ["wrong_format"] * 3
    for letter, text in zip(letters, sent.values(), strict=True):
        assert text in letter.message
