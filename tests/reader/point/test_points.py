"""Texts of points: a receipt comes back as it was, and what was damaged, or is of no use yet, is said to be."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import Position, Region, TableUuid, TableVersion, TopicId
from lancewal_core.store.json_object import WHOLE_MAX
from lancewal_reader.point.at import At, Point, point_of
from lancewal_reader.point.checked_text import PREFIX
from lancewal_reader.point.receipt import Receipt
from tests.support.fuzzing import fuzz

TOPIC_ID = TopicId("AAAAAAAAQACAAAAAAAAAAQ")
SMALL = Receipt(
    TableUuid("0c6d0f4e-5b1f-4a57-9d0e-3a8f1e2b4c5d"),
    TableVersion(412),
    {Region("orders", TOPIC_ID, 0): Position(120), Region("orders", TOPIC_ID, 10): Position(88)},
    "s3://lake/orders",
)
TEXT = (
    "lw1.ASQwYzZkMGY0ZS01YjFmLTRhNTctOWQwZS0zYThmMWUyYjRjNWQQczM6Ly9sYWtlL29yZGVyc5wDAAEdb3JkZXJz"
    "L0FBQUFBQUFBUUFDQUFBQUFBQUFBQVECAHgKWGs7PzU"
)
"""What was written once stays readable."""

words = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda text: text not in (".", ".."))
wholes = st.integers(0, WHOLE_MAX)
regions = st.builds(Region, words, words.map(TopicId), st.integers(0, 9_999))
receipts = st.builds(
    Receipt,
    words.map(TableUuid),
    st.integers(1, WHOLE_MAX).map(TableVersion),
    st.dictionaries(regions, wholes.map(Position), max_size=6),
    st.text(max_size=30).filter(lambda text: text.isprintable()),
    wholes,
)


@fuzz(60)
@given(receipt=receipts)
def test_a_receipt_comes_back_as_it_was(receipt: Receipt) -> None:
    text = str(receipt)
    assert text.startswith(PREFIX)
    assert set(text[len(PREFIX) :]) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert Receipt.parse(text) == Receipt.parse(f"  {text}\n".encode()) == point_of(text) == receipt
    assert Receipt.parse(receipt.to_json()) == point_of(receipt.to_json().encode()) == receipt
    assert (
        str(
            Receipt(
                receipt.table_uuid,
                receipt.version,
                dict(reversed(receipt.positions.items())),
                receipt.place,
                receipt.left_out,
            )
        )
        == text
    )


def test_its_text_stays_readable() -> None:
    assert str(SMALL) == TEXT


def test_a_receipt_of_many_partitions_is_short() -> None:
    many = {Region("orders", TOPIC_ID, p): Position(1_000_000 + p) for p in range(128)}
    assert len(str(Receipt(SMALL.table_uuid, SMALL.version, many, SMALL.place))) < 1_000


@fuzz(60)
@given(draw=st.data())
def test_damaged_text_is_said_to_be(draw: st.DataObject) -> None:
    text = str(SMALL)
    at = draw.draw(st.integers(len(PREFIX), len(text) - 1))
    letter = draw.draw(st.sampled_from("ABCxyz09-_ %"))
    changed = draw.draw(
        st.sampled_from([text[:at] + letter + text[at + 1 :], text[:at], text[:at] + letter + text[at:]])
    )
    if changed.strip() != text:
        with pytest.raises(InvalidInput, match=r"not a receipt: .*give the whole text, from 'lw1\.' on"):
            Receipt.parse(changed)


def checked(data: bytes) -> str:
    whole = data + google_crc32c.value(data).to_bytes(4, "big")
    return PREFIX + base64.urlsafe_b64encode(whole).rstrip(b"=").decode()


SOUND = base64.urlsafe_b64decode(str(SMALL)[len(PREFIX) :] + "==")[:-4]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x09" + SOUND[1:], "of another kind, or of a newer release"),
        (SOUND + b"\x00", "does not have the form of a receipt"),
        (SOUND[:-1], "ends too early"),
        (b"\x01\x01/" + SOUND[38:], "its table uuid or its version is not valid"),
        (SOUND[:-3] + b"\xff" * 9 + b"\x7f" + b"\x58", "a number in the text is too large"),
        (SOUND[:-4] + b"\x80\x00" + SOUND[-3:], "does not have the form of a receipt"),
        (SOUND.replace(b"orders/AAA", b"orders//AA"), "is not a region"),
    ],
)
def test_a_sound_checksum_does_not_make_a_receipt(data: bytes, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        Receipt.parse(checked(data))


def test_a_version_is_a_point() -> None:
    assert str(At.version(412)) == "version:412"
    assert point_of(" version:412\n") == point_of(At.version(412)) == At.version(412)
    assert point_of(None) is None
    for wrong in (0, -1, True, 1.5, "412", WHOLE_MAX + 1):
        with pytest.raises(InvalidInput, match=r"At.version\(.*a table version is an integer from 1"):
            At.version(wrong)  # type: ignore[arg-type] # what a user may write


UTC_NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("point", "text"),
    [
        (At.positions({1: 88, 0: 120}), "positions:0=120,1=88"),
        (At.timestamp(UTC_NOON), "timestamp:2026-01-31T12:00:00Z"),
        (At.timestamp(UTC_NOON + timedelta(microseconds=1900)), "timestamp:2026-01-31T12:00:00.001Z"),
        (At.record_time(UTC_NOON + timedelta(microseconds=1100)), "record-time:2026-01-31T12:00:00.002Z"),
        (At.record_time(UTC_NOON.astimezone(timezone(timedelta(hours=5)))), "record-time:2026-01-31T12:00:00Z"),
        (At.timestamp(datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC)), "timestamp:1969-12-31T23:59:59.999Z"),
        (At.snapshot("eom"), "snapshot:eom"),
    ],
)
def test_a_point_has_one_text_everywhere(point: Point, text: str) -> None:
    assert isinstance(point, At)
    assert str(point) == text
    assert point_of(f" {text}\n") == point_of(text.encode()) == point_of(point) == point


def test_numbers_of_numpy_are_numbers() -> None:
    numbers: Any = {np.int32(1): np.int64(88), 0: np.uint64(120)}
    assert point_of(str(At.positions(numbers))) == At.positions({0: 120, 1: 88})
    number: Any = np.int64(412)
    assert str(At.version(number)) == "version:412"


def test_other_forms_of_a_point() -> None:
    assert point_of("positions: 1=88 , 0=120") == At.positions({0: 120, 1: 88})
    assert point_of("timestamp:2026-01-31T13:00:00+01:00") == At.timestamp(UTC_NOON)
    for wrong in ({}, {0: -1}, {-1: 0}, {0: 1.5}, [1], {"0": 1}):
        with pytest.raises(InvalidInput, match="expected the position of each partition"):
            At.positions(wrong)  # type: ignore[arg-type] # what a user may write
    for moment in (datetime(2026, 1, 31), "2026-01-31T00:00:00Z", 7):
        with pytest.raises(InvalidInput, match="expected a datetime with its zone"):
            At.timestamp(moment)  # type: ignore[arg-type] # what a user may write


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("version:", "expected an integer after 'version:'"),
        ("version:4.5", "expected an integer"),
        ("version:٣", "expected an integer"),
        ("version:" + "9" * 30, "expected an integer"),
        ("version:0", "a table version is an integer from 1"),
        ("412", "not a receipt, nor another point: give lw1...., version:412, positions:0=120,1=88, timestamp:"),
        ("timestamp:2026-01-31", "expected a time with its zone, as in 2026-01-31T00:00:00Z"),
        ("record-time:2026-01-31T00:00:00", "expected a time with its zone"),
        ("timestamp:yesterday", "expected a time with its zone"),
        ("positions:", "expected the position of each partition, once, as in positions:0=120,1=88"),
        ("positions:0=1,0=2", "expected the position of each partition, once"),
        ("positions:0=-1", "expected the position of each partition, once"),
        ("positions:0=1;1=2", "expected the position of each partition, once"),
        ("positions:0=" + "9" * 19, r"At.positions\(.*expected the position of each partition"),
        ("snapshot:", "not a snapshot's name"),
        ("snapshot:a/b", "not a snapshot's name"),
        ("{}", "not a receipt"),
        (412, "at=412 is not a point: give a receipt, At.version"),
        (datetime(2026, 1, 31, tzinfo=UTC), r"a datetime, which is not a point: give At.timestamp\(...\)"),
    ],
)
def test_what_is_no_point_is_named(given: object, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        point_of(given)  # type: ignore[arg-type] # what a user may write
