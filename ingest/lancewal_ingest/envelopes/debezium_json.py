"""Debezium's envelope in JSON: which operation a value names, and the text of the row in it.

1. The envelope is one JSON object with the members ``op`` and ``source``.  Members that no rule here names change
   nothing.
2. The row is the text of the member ``after``, byte for byte.  A decoder of rows reads the text, and refuses what is
   no row.
3. The connector's converter also writes values without a row.  Heartbeats and transactions are known by their
   members, and messages by their operation ``m``.
4. ``read`` looks for the members in the order in which Debezium writes them.  ``read_strictly`` reads any order, and
   decides if ``read`` returns None.

Why ``read`` is right: in valid JSON no string holds an unescaped quote.  The text from ``"after":`` on is the value
of that member, if the decoder of rows finds one JSON object in it.  ``read`` parses the text before and after the
row.  It parses the row too if no decoder will read the row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from lancewal_ingest.decode.json.foreign import other_envelope
from lancewal_ingest.decode.json.strict import Number, given_twice, parse_object, with_texts
from lancewal_ingest.decode.outcomes import ENVELOPE, WRONG_FORMAT, Refusal

LETTERS: frozenset[str] = frozenset("curdtm")
ROWS: frozenset[str] = frozenset("cur")
"""Operations that need a row: created, updated, read by a snapshot."""
NO_ROWS: frozenset[str] = LETTERS - ROWS

_TIMES = frozenset({"ts_ms", "ts_us", "ts_ns"})
_TRANSACTION = frozenset({"status", "id", "event_count", "data_collections"})
_OWN = ("op", "before", "after", "source")

NO_BEFORE = b'{"before":null,"after":'
_BEFORE = b'{"before":'
_AFTER = b',"after":'
SOURCE = b',"source":{"'
_ONCE = (b'"op"', b'"source"')
"""Names that ``read`` requires exactly once in the text from ``source`` on, so that neither member is repeated.  An
escape could hide a name, so ``read`` accepts no Unicode escape there."""
_DIGITS_MAX = len(str(-(1 << 63)))


class RowEvent(NamedTuple):
    """An event about a row."""

    letter: str
    """Letter of the operation: one of ``LETTERS``."""
    row: bytes | None
    """Text of the row in ``after``; None for null."""
    has_before: bool
    """Whether the envelope has the row before the change, or its key."""
    numbers: tuple[int | None, ...] = ()
    """Integer in each member that the caller asked for; None if the member is absent or not an integer of 64 bits."""


class OtherEvent(NamedTuple):
    """A value without a row that is no error, such as a heartbeat."""

    kind: str
    """One of ``outcomes.PASSED_OVER``."""


def read(value: bytes, undecoded: Collection[str] = NO_ROWS, numbers: Sequence[str] = ()) -> RowEvent | None:
    """Read a value whose members have the order in which Debezium writes them.  Return None if ``read_strictly`` must
    read it.

    ``undecoded``: operations whose row no decoder will read.  ``numbers``: members whose integers are wanted, such as
    ``source.lsn``.
    """
    has_before = not value.startswith(NO_BEFORE)
    try:
        if not has_before:
            begin = len(NO_BEFORE)
        elif value.startswith(_BEFORE):
            end = value.find(_AFTER)
            if orjson.loads(value[len(_BEFORE) : end]) is None:  # a null with a blank
                return None
            begin = end + len(_AFTER)
        else:
            return None
        end = value.rfind(SOURCE)
        if end < begin or value.find(b"\\u", end) >= 0 or any(value.count(name, end) != 1 for name in _ONCE):
            return None
        behind = orjson.loads(b"{" + value[end + 1 :])
        letter, row = behind.get("op"), value[begin:end]
        if not isinstance(letter, str) or letter not in LETTERS or "after" in behind or "before" in behind:
            return None
        if letter in undecoded and not isinstance(orjson.loads(row), dict | None):
            return None
    except orjson.JSONDecodeError:
        return None
    told = _numbers(behind, numbers) if numbers else ()
    return RowEvent(letter, None if row == b"null" else row, has_before, told)


def read_strictly(value: bytes, numbers: Sequence[str] = ()) -> RowEvent | OtherEvent:
    """Read a value with its members in any order.  Raises ``Refusal`` if it is not an event.

    ``numbers``: members whose integers are wanted, such as ``source.lsn``.
    """
    members = parse_object(value, twice=True)
    twice = given_twice(members).intersection(_OWN)
    if twice:
        raise Refusal("duplicate_member", "expected each member of the envelope once", min(twice))
    letter = members.get("op")
    if not _is_text(letter) or not isinstance(members.get("source"), dict):
        return _beside_rows(members)
    if letter not in LETTERS:
        raise Refusal(ENVELOPE, f"member 'op': expected one of {', '.join(sorted(LETTERS))}")
    row = members.get("after")
    if row is not None and not isinstance(row, dict):
        raise Refusal(ENVELOPE, "member 'after': expected an object or null")
    text = None if row is None else _text_of_row(value)
    return RowEvent(str(letter), text, members.get("before") is not None, _numbers(members, numbers))


def kind_of_names(names: Collection[str]) -> str | None:
    """Return the kind of an event without a row (heartbeat or transaction) by the names of its members; None for other
    values.
    """
    found = {*names}
    if "ts_ms" in found and found <= _TIMES:
        return "heartbeat"
    return "transaction" if _TRANSACTION <= found <= _TRANSACTION | _TIMES else None


def passed_over(members: Mapping[str, object]) -> str | None:
    """Return the kind of an event without a row, such as a heartbeat; None for any other object."""
    kind = kind_of_names(members)
    return None if kind == "transaction" and members["status"] not in ("BEGIN", "END") else kind


def _beside_rows(members: Mapping[str, object]) -> OtherEvent:
    kind = passed_over(members)
    if kind is not None:
        return OtherEvent(kind)
    other = other_envelope(members, ())
    found = f"the value is {other}" if other else "the value is another JSON object"
    raise Refusal(
        WRONG_FORMAT,
        f"expected Debezium's envelope (op, source, before, after); {found}. table.format.envelope is debezium. If the "
        "connector unwraps rows (ExtractNewRecordState), set it to debezium-unwrapped",
    )


def _text_of_row(value: bytes) -> bytes:
    text = with_texts(value, {"after": object})
    if text is None:
        raise Refusal("duplicate_member", "expected each member of the row once; one is there twice")
    row = parse_object(text, twice=True)["after"]
    return str(row).encode("utf-8", "surrogatepass")


def _numbers(members: Mapping[str, Any], names: Sequence[str]) -> tuple[int | None, ...]:
    """Return the numbers of an event in some members, such as ``ts_ms`` and ``source.lsn``."""
    source = members["source"]
    return tuple(
        _number(source.get(inner) if outer == "source" else members.get(name))
        for name in names
        for outer, _, inner in [name.partition(".")]
    )


def _number(value: object) -> int | None:
    if isinstance(value, Number):
        value = int(value) if len(value) <= _DIGITS_MAX and value.removeprefix("-").isdecimal() else None
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)
