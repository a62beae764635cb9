"""Tokens: what they are made of, how they are joined, and that their texts come back as they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import Position
from lancewal_core.store.json_object import WHOLE_MAX
from lancewal_reader.point.at import point_of
from lancewal_reader.point.checked_text import PREFIX, checked
from lancewal_reader.point.read_options import read_options
from lancewal_reader.point.token import Token, least_of
from tests.reader.point.test_points import SMALL
from tests.support.fuzzing import fuzz

PARTITIONS = st.tuples(st.text("abXY01._-", min_size=1, max_size=20), st.integers(0, 9_999))
TOKENS = st.dictionaries(PARTITIONS, st.tuples(st.integers(1, WHOLE_MAX).map(Position), st.booleans()), max_size=6).map(
    lambda found: Token({p: at for p, (at, _) in found.items()}, frozenset(p for p, (_, own) in found.items() if own))
)

TEXT = "lw1.AgEGb3JkZXJzAQOyDgEd2e0F"
"""What was written once stays readable."""


@dataclass
class Metadata:
    """As kafka-python and aiokafka hand it out."""

    topic: Any = "orders"
    partition: Any = 3
    offset: Any = 1841


class Message:
    """As confluent-kafka hands it out."""

    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int | None:
        return self._offset


@fuzz(60)
@given(token=TOKENS)
def test_a_token_comes_back_as_it_was(token: Token) -> None:
    text = str(token)
    assert text.startswith(PREFIX)
    assert Token.parse(text) == least_of(f" {text}\n".encode()) == token
    assert str(Token(dict(reversed(list(token.positions.items()))), token.records)) == text


@fuzz(60)
@given(one=TOKENS, other=TOKENS)
def test_joined_it_asks_for_both(one: Token, other: Token) -> None:
    both = one | other
    assert both == other | one == both | one
    for partition in {*one.positions, *other.positions}:
        wanted = max(one.positions.get(partition, 0), other.positions.get(partition, 0))
        assert both.positions[partition] == wanted
        given_by = [t for t in (one, other) if t.positions.get(partition) == wanted]
        assert (partition in both.records) == any(partition in t.records for t in given_by)


def test_a_token_is_made_of_any_report() -> None:
    wanted = Token({("orders", 3): Position(1842)}, frozenset({("orders", 3)}))
    for record in (Metadata(), Message(1841), ("orders", 3, 1841), "orders-3-1841"):
        assert Token.of(record) == wanted
    assert least_of("orders-3-1841") == wanted
    dashed = Token.of("shop-7.orders-3-1841", ("orders", 0, 0))
    assert dashed.positions == {("shop-7.orders", 3): 1842, ("orders", 0): 1}
    assert str(wanted) == TEXT


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (Message(None), "a Message without offset|these do not name a delivered record of topic orders"),
        (Message(-1001), "these do not name a delivered record of topic orders"),
        (Metadata(offset=True), "do not name a delivered record of topic orders"),
        (Metadata(partition=1 << 31), "do not name a delivered record of topic orders"),
        (Metadata(topic="or/ders"), "topic 'or/ders' of a token is not a valid topic name"),
        (object(), "a object without topic is not a record: give a delivery report"),
        ("orders-3", "'orders-3' is not a token: give lw1...., or a record as TOPIC-PARTITION-OFFSET"),
        (("orders", 3), "a tuple without topic is not a record"),
    ],
)
def test_what_names_no_record_is_refused(record: object, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        Token.of(record)
    with pytest.raises(InvalidInput, match="give at least one record"):
        Token.of()


@pytest.mark.parametrize("position", [0, -5, WHOLE_MAX + 1, 1.0, True, None])
def test_what_no_token_says_is_refused(position: Any) -> None:
    with pytest.raises(InvalidInput, match="an integer from 1 on"):
        Token({("orders", 3): position})
    with pytest.raises(InvalidInput, match="among these partitions"):
        Token({("orders", 3): Position(1)}, frozenset({("orders", 4)}))


def test_a_receipt_is_a_token_and_a_token_is_no_point() -> None:
    assert least_of(SMALL) is SMALL
    assert least_of(str(SMALL)) == least_of(SMALL.to_json()) == SMALL
    with pytest.raises(InvalidInput, match="it is a token, which names no version; at_least takes it"):
        point_of(str(Token.of("orders-3-1841")))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (7, "at_least=7 is not a token: give Token.of"),
        ("lw1.AgEG", "not a token: the text is damaged"),
        (checked(b"\x09"), "not a token: it is of another kind, or of a newer release"),
        (checked(b"\x02\x01\x06orders\x01\x03\x00\x01"), "does not have the form of a token"),
        (checked(b"\x02\x01\x06orders\x01\x03\x05\x02"), "does not have the form of a token"),
        (checked(b"\x02\x01\x06or ers\x01\x03\x05\x01"), "a topic in it has no valid name"),
        (checked(b"\x02\x01\x06orders\x01\x03\x05\x01\x00"), "does not have the form of a token"),
    ],
)
def test_what_is_no_token_is_named(given: object, text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        least_of(given)  # type: ignore[arg-type] # what a user may write


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"at": "version:7", "at_least": "orders-3-1841"}, "at and at_least cannot be given together"),
        ({"consistency": "eventual", "at_least": "orders-3-1841"}, "at_least applies to strong reads"),
        ({"timeout_s": -1}, "timeout_s=-1: expected a number of seconds from 0 on"),
        ({"timeout_s": float("nan")}, "timeout_s=nan: expected a number of seconds"),
        ({"timeout_s": 10**400}, "timeout_s=1000.*: expected a number of seconds"),
        ({"timeout_s": True}, "timeout_s=True: expected a number of seconds"),
        ({"timeout_s": np.True_}, "timeout_s=.*True.*: expected a number of seconds"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        read_options(**options)


@pytest.mark.parametrize("seconds", [np.int64(3), np.float64(3), 3])
def test_numbers_of_seconds_may_be_those_of_numpy(seconds: float) -> None:
    assert read_options(timeout_s=seconds).timeout_s == 3.0
