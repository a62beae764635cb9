"""Events whose ends are compared and not read, against the strict readers, which see one value at a time."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.sections import ValueFormat
from lancewal_ingest.decode.outcomes import KINDS
from lancewal_ingest.envelopes import avro_opening, json_events, tails
from lancewal_ingest.envelopes.envelope import EnvelopeRules
from lancewal_ingest.formats import value_decoder
from tests.ingest.envelopes.test_event_columns import cells, contract, decoded, of_rows
from tests.ingest.envelopes.test_postgres_with_schemas import (
    ENVELOPE,
    EVENTS,
    ROW,
    SCHEMAS,
    SMALL,
    became,
    event,
    rows_of,
    strict_reader_alone,
    written,
)
from tests.support.debezium import samples
from tests.support.fuzzing import damaged, fuzz

SOURCE: dict[str, Any] = {
    "type": "record", "name": "Source", "fields": [
        {"name": "db", "type": "string"}, {"name": "ts_ms", "type": "long"}, {"name": "lsn", "type": ["null", "long"]},
        {"name": "first", "type": "boolean"}, {"name": "share", "type": "double"},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "mode", "type": {"type": "enum", "name": "Mode", "symbols": ["a", "b"]}}, {"name": "id", "type": "int"},
    ],
}  # fmt: skip
BEFORE, AFTER, _, OP = ENVELOPE["fields"]
TIMED = {
    **ENVELOPE,
    "fields": [BEFORE, AFTER, {"name": "source", "type": SOURCE}, OP, {"name": "ts_ms", "type": "long"}],
}


@contextlib.contextmanager
def shapes(*, many: bool) -> Iterator[list[int]]:
    """Shapes are looked for among few values too, or not at all.  Gives how many values had each shape."""
    had: list[int] = []
    look = tails.Shapes.found

    def found(*args: Any) -> Iterator[Any]:
        for shape, places in look(*args):
            had.append(len(places))
            yield shape, places

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tails, "FEW", 0)
        patch.setattr(avro_opening, "FEW", 0)
        patch.setattr(tails.Shapes, "found", found if many else lambda *_: iter(()))
        yield had


def plain(event_: dict[str, Any]) -> bytes:
    """The event in JSON, with its members in Debezium's order."""
    members = {name: event_[name] for name in ("before", "after", "source", "op")}
    return json.dumps(members, separators=(",", ":")).encode()


def timed(number: int, op: str = "u", **source: Any) -> dict[str, Any]:
    """An event.  Its numbers have other digits than those of others, and two lengths."""
    odd = number % 2
    of = {"db": "shop", "ts_ms": 1_700_000_000_000 + 7919 * number, "lsn": 1000**odd * (5 + number % 3), "first": bool(odd),
          "share": 1.5, "four": bytes([number % 256] * 4), "mode": "ab"[odd], "id": 100 + number, **source}  # fmt: skip
    row = {"id": number, "s": "x" * (number % 3)}
    return {"before": None, "after": row, "source": of, "op": op, "ts_ms": 10_000 + number}


def in_json(events: Sequence[dict[str, Any]]) -> list[bytes]:
    texts = [{**one, "source": {**one["source"], "four": f"{one['source']['four'][0]:03}"}} for one in events]
    return [json.dumps(text, separators=(",", ":")).encode() for text in texts]


@pytest.mark.parametrize("format_", ["json", "avro"])
def test_rows_and_numbers_of_many_events(format_: ValueFormat) -> None:
    """Each event has the row and the numbers that it was made with.  Nearly all are found by the shapes of a few."""
    events = [timed(number, "cur"[number % 3]) for number in range(400)]
    values = in_json(events) if format_ == "json" else [written(one, TIMED, 910) for one in events]
    of = contract({"id": "int64", "s": "string"})
    with shapes(many=True) as had:
        found = decoded(values, of, format_)
    assert not found.refused
    assert cells(found, of.rows) == of_rows(events)
    rows = dict.fromkeys(range(400))
    for part in found.parts:
        rows |= dict(
            zip(part.indexes.tolist(), zip(*(part.columns[n].to_pylist() for n in (0, 5)), strict=True), strict=True)
        )
    assert rows == {n: (n, "x" * (n % 3)) for n in range(400)}
    assert sum(had) > 390


NUMBERS = st.sampled_from([0, -1, -10, 7, 127, 10**17, 10**18, -(10**17), 2**63 - 1, -(2**63)])


@fuzz(60)
@given(st.lists(NUMBERS | st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=12))
def test_numbers_of_all_lengths(numbers: list[int]) -> None:
    events = [timed(0, ts_ms=number, lsn=number) for number in numbers]
    of = contract({"id": "int64", "s": "string"})
    longer = [timed(0, ts_ms=number + 2**63, lsn=number * 10) for number in numbers]
    with shapes(many=True):
        assert cells(decoded(in_json(longer), of), of.rows) == of_rows(longer)
    for format_, values in (("json", in_json(events)), ("avro", [written(one, TIMED, 910) for one in events])):
        with shapes(many=True):
            found = decoded(values, of, format_)  # type: ignore[arg-type] # it is a format
        assert cells(found, of.rows) == of_rows(events)


def of_avro() -> list[bytes]:
    one = [event_["value"] for event_ in EVENTS if event_["table"] == "lines" and event_["op"] in "curd"]
    return [one[0][:5] + value[5:] for value in one if value[:5] == one[0][:5]]


@fuzz(200)
@given(st.data(), st.booleans())
def test_damaged_events_of_avro(data: st.DataObject, skips: bool) -> None:
    good = of_avro()
    values = data.draw(
        st.lists(st.sampled_from(good) | damaged(good, in_place=True) | damaged(good), min_size=1, max_size=12)
    )
    values = [good[0][:5] + value[5:] for value in values]
    rules = EnvelopeRules("debezium", skips)
    with shapes(many=True):
        together = became(values, rows_of("lines"), rules=rules)
    with shapes(many=False), strict_reader_alone():
        assert together == [became([value], rows_of("lines"), rules=rules)[0] for value in values]


@st.composite
def other_digits(draw: st.DrawFn, sources: Sequence[bytes]) -> bytes:
    """A value with other digits in some places, in numbers, texts and names alike."""
    source = bytearray(draw(st.sampled_from(sources)))
    places = [found.start() for found in re.finditer(rb"[0-9]", source)]
    for at in draw(st.lists(st.sampled_from(places), max_size=5)):
        source[at] = draw(st.sampled_from(b"0123456789"))
    return bytes(source)


@fuzz(200)
@given(st.data(), st.booleans())
def test_damaged_events_of_json(data: st.DataObject, skips: bool) -> None:
    good = [one.value for one in samples("postgres_json", "lines") if one.value is not None]
    value = st.sampled_from(good) | other_digits(good) | damaged(good, in_place=True) | damaged(good)
    values = data.draw(st.lists(value, min_size=1, max_size=12))
    rules = EnvelopeRules("debezium", skips)
    with shapes(many=True):
        together = became(values, rows_of("lines"), "json", rules)
    with shapes(many=False), mock.patch.object(json_events, "read", return_value=None):
        alone = [became([value], rows_of("lines"), "json", rules)[0] for value in values]
    assert all(one == other or (one in KINDS and other in KINDS) for one, other in zip(together, alone, strict=True))


def test_an_end_of_the_same_shape_may_begin_elsewhere() -> None:
    """The last four bytes are those of an end whose text has one byte.  The text has five."""
    normal, longer = written(event("c", ROW)), {**event("c", ROW), "source": {"db": "zz\x02y"}}
    with shapes(many=True) as had:
        assert became([normal, normal, written(longer), normal], SMALL) == [ROW] * 4
    assert 4 in had
    damaged_row = written(event("c", ROW)).replace(b"\0\x02\x0e", b"\0\x02\x80", 1)
    with shapes(many=True):
        assert became([normal, damaged_row, normal], SMALL) == [ROW, "malformed", ROW]
    assert messages([normal, damaged_row, normal], many=True) == messages([damaged_row], many=False)


def messages(values: list[bytes], *, many: bool) -> list[str]:
    """Why values are refused, which does not depend on their neighbours."""
    decoder = value_decoder("avro", SMALL, schemas=SCHEMAS, envelope=EnvelopeRules("debezium"))
    with shapes(many=many):
        return [one.message for one in decoder.decode(values, np.zeros(len(values), np.uint8)).refused]


@pytest.mark.parametrize(("name", "number", "nbytes"), [("id", 2**31 - 1, 5), ("ts_ms", 2**63 - 1, 10)])
def test_integers_of_most_bytes_are_in_their_types(name: str, number: int, nbytes: int) -> None:
    good = written(timed(1, "u", **{name: number}), TIMED, 910)
    last = good.index(b"\xfe" + b"\xff" * (nbytes - 2)) + nbytes - 1
    bad = good[:last] + bytes([good[last] + 16]) + good[last + 1 :]
    with shapes(many=True) as had:
        assert became([good, good, bad, good], SMALL) == [timed(1)["after"]] * 2 + ["malformed", timed(1)["after"]]
    assert had == [3]


@pytest.mark.parametrize("op", ["d", "r", "m", "t"])
def test_a_row_that_nobody_decodes_is_read(op: str) -> None:
    """No decoder would find that the row is damaged, or ends before its end."""
    good = written(event("c", ROW))
    of_op = written(event(op, ROW))
    wrong_branch, longer = of_op.replace(b"\x0e\x02", b"\x0e\x04", 1), of_op.replace(b"\x02x\x02x", b"\x02x\0\x02x", 1)
    rules = EnvelopeRules("debezium", True)
    with shapes(many=True):
        found = became([good, wrong_branch, longer, good], SMALL, rules=rules)
    assert found == [ROW, "malformed", "malformed", ROW]
    text = plain(event(op, ROW))
    without = written(event(op))
    with shapes(many=True):
        found = became([without, without[:-4] + b"zz" + without[-4:], without], SMALL)
    assert found[0] == found[2] != found[1] == "malformed"
    good, cut = text.replace(f'"{op}"'.encode(), b'"c"'), text.replace(b'"after":{', b'"after":[')
    with shapes(many=True):
        found = became([good, cut, good], SMALL, "json", rules=rules)
    assert found == [ROW, "not_json", ROW]


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (b'"n":10', b'"n":00'), (b'"n":-10', b'"n":-00'), (b'"n":1e300', b'"n":1e999'),
        (b'"n":"\\ud83d\\ude00"', b'"n":"\\ud03d\\ude00"'),
        (b'"n":1.5', b'"n":1.:'), (b'"n":"5"', b'"n":"\x1f"'), (b'"n":9', b'"n":/'),
    ],
)  # fmt: skip
def test_other_bytes_in_place_of_digits(good: bytes, bad: bytes) -> None:
    text = plain(event("c", ROW)).replace(b'"db":"x"', b'"n":0')
    values = [text.replace(b'"n":0', part) for part in (good, good, bad, good)]
    with shapes(many=True):
        found = became(values, SMALL, "json")
    with shapes(many=False), mock.patch.object(json_events, "read", return_value=None):
        assert found == [became([value], SMALL, "json")[0] for value in values]
    assert found[:2] == [ROW, ROW]


def test_an_escaped_operation_has_no_shape() -> None:
    """Another letter in place of its backslash makes another text, which is no operation."""
    text = plain(event("c", ROW))
    escaped, other = (text.replace(b'"op":"c"', b'"op":"%s"' % op) for op in (b"\\u0063", b"cu0063"))
    with shapes(many=True):
        assert became([escaped, escaped, other, escaped], SMALL, "json") == [ROW, ROW, "envelope", ROW]


def test_an_old_row_behind_the_new_one_is_seen() -> None:
    value = {"type": "record", "name": "Value", "fields": [
        {"name": "id", "type": "long"}, {"name": "v", "type": ["null", {"type": "array", "items": "int"}]}]}  # fmt: skip
    before, after = {**BEFORE, "type": ["null", "Value"]}, {**AFTER, "type": ["null", value]}
    schema = {**ENVELOPE, "fields": [after, *ENVELOPE["fields"][2:], before]}
    rows = RowSchema(pa.schema([pa.field("id", pa.int64(), False), ("v", pa.list_(pa.int32()))]), ("id",), ("id",))
    row = {"id": 7, "v": None}
    with_old, without = (written(event("u", row, old), schema, 911) for old in (row, None))
    with shapes(many=True):
        found = became([with_old, with_old, without, with_old], rows)
    assert found == [row, row, "unavailable_value", row]


def test_members_that_are_there_twice_or_look_alike() -> None:
    """The numbers are those that the other look finds.  Only the last member of a name counts."""
    text = json.dumps(timed(1), separators=(",", ":"), default=bytes.hex).encode()
    ends = [
        b',"source":{"lsn":9},"source":{},"op":"c"}', b',"source":{"ts_ms":8,"lsn" :9},"op":"c"}',
        b',"source":{"db":1},"source.lsn":9,"op":"c"}',
        b',"source":{"lsn":9,"lsn":7},"op":"c","ts_ms":5}', b',"source":{"a":["op","lsn",1],"lsn":[7]},"op":"c"}',
        b',"source":{"ls\\u006e":9},"op":"c"}', b',"source":{"a":1,"lsn":7},"op":"c","x":[{"ts_ms":1},{"ts_ms":2}]}',
    ]  # fmt: skip
    of = contract({"id": "int64", "s": "string"})
    for end in ends:
        values = [text[: text.index(b',"source"')] + end] * 3
        with shapes(many=True):
            found = decoded(values, of)
        with shapes(many=False):
            other = decoded(values, of)
        assert [one.kind for one in found.refused] == [one.kind for one in other.refused]
        assert cells(found, of.rows) == cells(other, of.rows)


def test_a_value_that_is_shorter_than_a_known_end() -> None:
    decoder = value_decoder("json", SMALL, envelope=EnvelopeRules("debezium"))
    with shapes(many=True) as had:
        for values in ([plain(event("c", ROW))] * 3, [b"{}"], []):
            found = decoder.decode(values, np.zeros(len(values), np.uint8))
            assert [one.kind for one in found.refused] == ["wrong_format"] * values.count(b"{}")
    assert had == [3]


def test_shapes_are_few_and_short() -> None:
    """Ends of a hundred lengths, and a long one: their events have their rows all the same."""
    events = [event("c", ROW) for _ in range(300)]
    for number, one in enumerate(events):
        one["source"] = {"db": "x" * (number % 100 + 1)}
    events[7]["source"] = {"db": "x" * 2 * tails.TAIL_BYTES_MAX}
    with shapes(many=True) as had:
        assert became([written(one) for one in events], SMALL) == [ROW] * 300
        assert became([plain(one) for one in events], SMALL, "json") == [ROW] * 300
    assert 0 < len(had) <= 8
    rows = RowSchema(pa.schema([pa.field("id", pa.int64(), nullable=False)]), ("id",), ("id",))
    with shapes(many=True) as had:
        assert set(became([written(one) for one in events], rows)) == {"unknown_column"}
    assert had == []
