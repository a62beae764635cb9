"""Headers of many messages in a column are those of a list, however they are divided and joined."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_kafka.headers import UNREADABLE_HEADERS, HeaderList, MessageHeaders
from lancewal_kafka.records import Records

NAMES = st.sampled_from(["", "traceparent", "lancewal.op", "ä", "\x00", "\U0001f600"])
LISTS: st.SearchStrategy[HeaderList | None] = (
    st.none()
    | st.just(UNREADABLE_HEADERS)
    | st.lists(st.tuples(NAMES, st.none() | st.sampled_from([b"", b"x", b"\xff\x00"])), max_size=3)
)
MESSAGES = st.lists(LISTS, max_size=6) | st.lists(st.none(), max_size=6)


def given_back(headers: MessageHeaders) -> list[HeaderList | None]:
    """An empty list beside nulls stays one; where no message has headers, it is null."""
    return [headers[at] for at in range(len(headers))]


def plain(of: list[HeaderList | None]) -> list[HeaderList | None]:
    return of if any(of) else [None] * len(of)


@given(st.lists(MESSAGES, max_size=5), st.data())
def test_parts_and_joins(parts: list[list[HeaderList | None]], data: st.DataObject) -> None:
    expected = [one for part in parts for one in plain(part)]
    joined = MessageHeaders.joined(map(MessageHeaders, parts))
    extended = MessageHeaders()
    for part in parts:
        extended.extend(MessageHeaders(part))
    begin = data.draw(st.integers(0, len(expected)))
    end = data.draw(st.none() | st.integers(0, len(expected) + 1))
    assert joined[begin:end] == expected[begin:end]  # before anything has made one column
    assert extended == joined == expected
    assert given_back(extended) == list(extended) == expected
    again = extended[begin:end]
    assert given_back(again) == expected[begin:end]
    again.extend(joined)
    assert again == [*expected[begin:end], *expected]
    assert extended == expected, "a part does not grow what it was taken from"
    assert joined == expected
    with pytest.raises(IndexError):
        extended[len(expected)]


def test_messages_without_headers_have_no_column() -> None:
    none = MessageHeaders([None, [], None])
    none.extend(MessageHeaders([None]))
    assert none.column is None
    assert len(none) == 4
    assert MessageHeaders.joined([none, MessageHeaders([[("a", b"x")]])]) == [None] * 4 + [[("a", b"x")]]


def test_records_are_joined_and_divided_with_their_headers() -> None:
    of: list[Any] = [[("a", b"1")], None, UNREADABLE_HEADERS]
    records = Records([1, 2, 3], [0] * 3, [None] * 3, [None] * 3, MessageHeaders(of))
    assert records.part(1, None).headers == of[1:]
    assert Records.joined([records, records.part(0, 1)]).headers == [*of, of[0]]
    records.extend(records.part(2, 3))
    assert records.headers == [*of, of[2]]
