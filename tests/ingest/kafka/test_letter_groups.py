"""Dead letters in groups, against a dict, and their topic read to its end, from a twin of the brokers."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from lancewal_core.errors import InvalidInput, KafkaUnavailable, RecordsUnreadable, TopicMissing
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_ingest.commands.dead_letter import letters_json, letters_text, moment_ms
from lancewal_ingest.kafka import letter_reader
from lancewal_ingest.kafka.letter_groups import FURTHER, GROUPS_MAX, LetterGroups
from lancewal_ingest.kafka.letter_reader import read_letters
from lancewal_kafka.headers import UNREADABLE_HEADERS
from lancewal_kafka.records import Records
from lancewal_kafka.reread import OutOfRange
from lancewal_kafka.topic import TopicFacts
from tests.ingest.decode.avro.cases import record
from tests.ingest.decode.framed.test_framed import Known, decoder, of_seven

TABLE = uuid.UUID(int=7)
GROUP = f"lancewal-{TABLE}"
Headers = list[tuple[str, bytes | None]]


def letter(
    kind: str = "type", message: str = "m", source: str = "orders-3-17", group: str = GROUP, more: Headers | None = None
) -> Headers:
    return [
        *(more or []),
        ("__connect.errors.connector.name", group.encode()),
        ("__connect.errors.exception.message", message.encode()),
        ("lancewal.kind", kind.encode()),
        ("lancewal.source", source.encode()),
    ]


def records(headers: list[Headers | None], times: list[int] | None = None, first: int = 0) -> Records:
    count = len(headers)
    return Records(list(range(first, first + count)), times or [0] * count, [None] * count, [None] * count, [*headers])


def grouped(headers: list[Headers | None], times: list[int] | None = None, **times_asked: int) -> LetterGroups:
    found = LetterGroups("orders", GROUP, **times_asked)
    found.add(records(headers, times))
    return found


def test_letters_are_counted_by_kind_and_column() -> None:
    rng = random.Random(33)
    messages = {
        "column 'amount': expected an integer": ("type", "amount"),
        "column 'address.street': expected a string": ("type", "address.street"),
        'column "it\'s": expected a string': ("type", "it's"),
        "expected no members but the columns ['a', 'b']. Found: 'colour'": ("unknown_column", "colour"),
        "column 'address': expected no members but ['street']. Found: 'town'": ("unknown_column", "address.town"),
        f"expected no members but the columns []. Found: '{'x' * 99}...": ("unknown_column", "x" * 99),
        "expected JSON; NaN and Infinity are not JSON numbers": ("not_json", ""),
        "the record's key belongs to partition 3 of 4": ("misrouted", ""),
    }
    given = [(rng.choice([*messages]), rng.randrange(10**12), offset) for offset in range(500)]
    found = grouped(
        [letter(messages[m][0], m, f"orders-2-{offset}") for m, _, offset in given], [time for _, time, _ in given]
    )
    expected = Counter(messages[m] for m, _, _ in given)
    assert {(one.kind, one.column): one.letters for one in found.groups()} == expected
    assert [one.letters for one in found.groups()] == sorted(expected.values(), reverse=True)
    for one in found.groups():
        of = [(time, offset, m) for m, time, offset in given if messages[m] == (one.kind, one.column)]
        assert (one.first_ms, one.last_ms) == (min(of)[0], max(of)[0])
        assert one.example == ("orders", 2, max(of)[1])
        assert one.message == max(of)[2][:300]
    assert (found.letters, found.elsewhere, found.foreign) == (500, 0, 0)


@pytest.mark.parametrize(
    ("fields", "kind", "column"),
    [
        ([("id", "long"), ("s", "double")], "type", "s"),
        ([("s", "string")], "missing_key", "id"),
        ([("id", "long"), ("s", "string"), ("colour", "string")], "unknown_column", "colour"),
        ([("id", ["null", "long"])], "missing_key", "id"),
    ],
)
def test_letters_of_a_registry_s_schemas_name_the_column(fields: list[Any], kind: str, column: str) -> None:
    """Messages of a decoder: the schema does not fit a column, has no field for the key or an unknown one; a key is null."""
    avro, row = record(fields), {"id": 7 if kind != "missing_key" else None, "s": 1.5 if kind == "type" else "a"}
    values = [of_seven(avro, {**row, "colour": "red"})]
    (one,) = decoder(Known(avro)).decode(values, np.zeros(1, np.uint8)).refused
    message = f"{one.message}. Found: {one.found!r}" if one.found else one.message
    (group,) = grouped([letter(one.kind, message)]).groups()
    assert (group.kind, group.column) == (kind, column)


def test_letters_of_other_tables_are_counted_apart() -> None:
    """Of another topic; of the same topic by the default group of another table; but not by a group that has a name."""
    other = f"lancewal-{uuid.UUID(int=8)}"
    found = grouped([letter(source="trips-0-1"), letter(group=other), letter(group="moved-here"), letter()])
    assert (found.letters, found.elsewhere) == (2, 2)


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        UNREADABLE_HEADERS,
        [("lancewal.kind", None), ("lancewal.source", None)],
        letter(kind="hunter"),
        letter(kind=""),
        letter(source="orders"),
        letter(source="orders-3-"),
        letter(source="or/ders-3-17"),
        letter(source="..-3-17"),
        letter(source="orders-3-" + "9" * 5_000),
        letter(source="orders-3-\u0661"),
        letter(source="orders-3-17\n"),
        [("lancewal.kind", b"\xff\xfe"), ("lancewal.source", b"\xff")],
    ],
)
def test_a_record_that_is_no_letter_is_foreign(headers: Headers | None) -> None:
    found = grouped([headers, letter()])
    assert (found.letters, found.foreign) == (1, 1)


def test_what_stands_in_a_letter_moves_no_cursor_and_takes_no_room() -> None:
    """Not UTF-8, huge, of control characters, forged by the record itself: ours stand behind and count."""
    hostile = "column '\x1b[2J\nfake': expected \x1b]0;x\x07" + "y" * 10_000_000
    forged: Headers = [("lancewal.kind", b"range"), ("lancewal.source", b"trips-9-9"), ("x", b"z" * 1_000_000)]
    bad = [("__connect.errors.exception.message", b"column '\xff': \xff"), *letter()[2:]]
    found = grouped([letter(message=hostile, more=forged), bad])
    assert [one.kind for one in found.groups()] == ["type", "type"]
    assert all(len(one.message) <= 300 and len(one.column) <= 200 for one in found.groups())
    text = letters_text("t", found, {0: "a\nb"})
    assert "\x1b" not in text
    assert len(text.splitlines()) == 7  # a title, a heading, two lines for each group, and the partition


def test_groups_are_bounded() -> None:
    """Names that a producer makes up: the first are kept, all are counted, and other kinds are told still."""
    count = GROUPS_MAX + 500
    found = LetterGroups("orders", GROUP)
    for name in range(count):
        found.add(records([letter("unknown_column", f"m. Found: 'n{name}'")]))
    found.add(records([letter("not_json", "m")]))
    assert found.letters == count + 1
    by_key = {(one.kind, one.column): one.letters for one in found.groups()}
    assert by_key["unknown_column", FURTHER] == 500
    assert by_key["not_json", FURTHER] == 1
    assert len(by_key) == GROUPS_MAX + 2


def test_times_bound_what_is_counted() -> None:
    times = [10, 20, 30, -1]
    found = grouped([letter(source=f"orders-0-{t}") for t in range(4)], times, since_ms=20, until_ms=30)
    (one,) = found.groups()
    assert (one.letters, one.first_ms, one.last_ms, one.example) == (2, 20, 20, ("orders", 0, 1))
    (without,) = grouped([letter()], [-1]).groups()
    assert (without.first_ms, without.last_ms) == (None, None)


def test_a_time_is_a_duration_or_a_moment() -> None:
    assert moment_ms("--since", "", 5_000) is None
    assert moment_ms("--since", "2s", 5_000) == 3_000
    assert moment_ms("--since", "1970-01-01T01:00:01+01:00", 0) == 1_000
    for text in ("2026-01-31T00:00:00", "yesterday", "24"):
        with pytest.raises(InvalidInput, match=r"--since.*24h"):
            moment_ms("--since", text, 0)


def test_the_report_for_programs() -> None:
    found = grouped([letter(message="column 'a': expected b"), letter("not_json", "m", "trips-1-2"), None], [1_000] * 3)
    told = letters_json("orders.dead-letters", found, {2: "why"})
    assert told == {
        "topic": "orders.dead-letters",
        "letters": 1,
        "groups": [
            {
                "kind": "type", "column": "a", "letters": 1, "first": "1970-01-01T00:00:01Z", "last": "1970-01-01T00:00:01Z",
                "topic": "orders", "partition": 3, "offset": 17, "message": "column 'a': expected b",
            }
        ],
        "elsewhere": 1, "foreign": 1, "unread": [{"partition": 2, "reason": "why"}],
    }  # fmt: skip


# -- the reading -----------------------------------------------------------------------------------------------


class Topic:
    """A twin of brokers and consumer: partitions with a first offset, an end, and what is read between."""

    def __init__(self, limits: dict[int, Any], read: Any) -> None:
        self.limits_of, self.read, self.lows = limits, read, {p: one[0] for p, one in limits.items()}
        self.asked: list[tuple[int, int, int]] = []
        self.since_of: dict[int, int | None] = {}

    def identify(self, topic: str) -> TopicFacts:
        return TopicFacts(TopicId("id"), len(self.limits_of))

    def limits(self, topic: str, partitions: Any) -> Any:
        return self.limits_of

    def begins(self, topic: str, partitions: list[int]) -> dict[int, int]:
        return {p: self.lows[p] for p in partitions}

    def since(self, topic: str, partitions: list[int], time_ms: int) -> dict[int, int | None]:
        return {p: self.since_of.get(p) for p in partitions}

    def consumed(self, _: object, region: Region, first: Position, end: Position, at_once: int) -> Iterator[Records]:
        self.asked.append((region.partition, first, end))
        yield from self.read(region.partition, first, end)

    def put_in(self, monkeypatch: pytest.MonkeyPatch) -> Topic:
        monkeypatch.setattr(letter_reader, "TopicInspector", lambda client: self)
        monkeypatch.setattr(letter_reader, "consumed", self.consumed)
        monkeypatch.setattr(letter_reader, "lone_consumer", lambda *_: contextlib.nullcontext())
        return self


def of_range(partition: int, first: int, end: int) -> Iterator[Records]:
    if first < end:
        yield records([letter()] * (end - first), first=first)


def count(since_ms: int | None = None) -> tuple[LetterGroups, dict[int, str]]:
    found = LetterGroups("orders", GROUP)
    return found, read_letters({}, "g", "orders.dead-letters", found.add, since_ms)


def test_every_partition_is_read_to_the_end_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is empty, or was trimmed to its end."""
    topic = Topic({0: (0, 5), 1: (0, 0), 2: (7, 7), 3: (100, 103)}, of_range).put_in(monkeypatch)
    found, unread = count()
    assert (found.letters, unread) == (8, {})
    assert topic.asked == [(0, 0, 5), (1, 0, 0), (2, 7, 7), (3, 100, 103)]


def test_a_time_skips_what_is_older(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic({0: (0, 5), 1: (0, 5)}, of_range).put_in(monkeypatch)
    topic.since_of = {0: 3}  # partition 1 has no record as new
    found, _ = count(since_ms=1)
    assert found.letters == 2


def test_what_retention_deletes_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(partition: int, first: int, end: int) -> Iterator[Records]:
        if first < 4:
            yield records([letter()], first=first)
            topic.lows[0] = 4
            raise OutOfRange
        yield from of_range(partition, first, end)

    topic = Topic({0: (0, 6)}, read).put_in(monkeypatch)
    found, unread = count()
    assert (found.letters, unread) == (3, {})


def test_a_partition_that_is_deleted_faster_than_it_is_read_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(partition: int, first: int, end: int) -> Iterator[Records]:
        topic.lows[0] += 1
        yield from ()
        raise OutOfRange

    topic = Topic({0: (0, 10**9)}, read).put_in(monkeypatch)
    _, unread = count()
    assert "faster" in unread[0]


def test_a_partition_that_cannot_be_read_is_named_and_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(partition: int, first: int, end: int) -> Iterator[Records]:
        if partition == 1:
            yield records([letter()], first=first)
            raise RecordsUnreadable("lancewal offset reject", offset=1)
        yield from of_range(partition, first, end)

    Topic({0: (0, 2), 1: (0, 9), 2: (0, 3)}, read).put_in(monkeypatch).limits_of[0] = KafkaUnavailable("no leader")
    found, unread = count()
    assert found.letters == 4
    assert unread == {0: "no leader", 1: "the records at offset 1 cannot be read"}


def test_a_missing_topic_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic({}, of_range).put_in(monkeypatch)

    def missing(_: str) -> Any:
        raise TopicMissing("no")

    monkeypatch.setattr(topic, "identify", missing)
    with pytest.raises(TopicMissing, match="--dead-letter-topic"):
        count()
