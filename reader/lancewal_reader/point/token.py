"""A token: records that a read must see, by topic and partition, made from the delivery reports of a producer.

A token names no version and no table, since a producer has the topic, partition and offset of its records, and
nothing else.  For each partition the token asks for one position: the one after the last of its records there.  It
thereby asks for every earlier record of that partition too.

As text it is one word (``checked_text``), or the name of a record, ``orders-3-1841``, as messages and dead letters
print it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import Position, position_after
from lancewal_core.store.json_object import WHOLE_MAX, is_whole
from lancewal_reader.point.checked_text import PREFIX, RECEIPT, TOKEN, Bytes, by_topic, checked, unchecked
from lancewal_reader.point.receipt import Receipt

Partition = tuple[str, int]
"""Topic, and number of the partition."""
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_RECORD = re.compile(r"([a-zA-Z0-9._-]+)-([0-9]{1,9})-([0-9]{1,18})", re.ASCII)
_PARTITION_MAX = (1 << 31) - 1
_SHOWN = 60
_RECORDS = "a delivery report, (topic, partition, offset), or text such as 'orders-3-1841'"


@dataclass(frozen=True, slots=True)
class Token:
    """Positions that a read must reach (``at_least``): for each partition the position after a record, or the
    partition's end.

    ``Token.of`` makes a token from records, and ``Token.at_end`` from a topic's ends.  ``a | b`` requires both.
    ``str()`` returns the token as text.
    """

    positions: Mapping[Partition, Position]
    records: frozenset[Partition] = frozenset()
    """Partitions in which the token names a record: the one right before the position.  A read raises
    ``TokenRejected`` if this record became a dead letter, and ``RecordsGivenUp`` if its offset was given up.
    """

    def __post_init__(self) -> None:
        wrong = next((p for p, at in self.positions.items() if not is_whole(at, 1)), None)
        if wrong is not None or not self.records <= self.positions.keys():
            raise InvalidInput(
                f"Token({dict(self.positions)!r:.{_SHOWN}}, ...): expected for each partition the position after a "
                "record, an integer from 1 on. Each partition in records must be among these partitions"
            )

    @staticmethod
    def of(*records: object) -> Token:
        """Return the token of produced records.  A read with this token contains all of them.

        A record is the delivery report of any Kafka client, with topic, partition and offset as attributes or methods.
        It may also be ``(topic, partition, offset)``, or text such as ``orders-3-1841``.

        Raises ``InvalidInput`` if a value names no record, such as the report of a failed delivery.
        """
        if not records:
            raise InvalidInput(f"Token.of(): give at least one record: {_RECORDS}")
        return _joined([_of_one(record) for record in records])

    @staticmethod
    def at_end(topic: str, kafka_options: Mapping[str, str]) -> Token:
        """Ask the brokers for the topic's ends, and return the token of all its records, except those of open
        transactions.

        ``kafka_options`` are a client's properties, ``bootstrap.servers`` among them.  This method needs
        ``lancewal[kafka]``; no other part of a reader asks brokers.  Raises ``KafkaUnavailable``, ``TopicMissing``,
        ``KafkaForbidden``, ``InvalidSettings``.
        """
        try:
            from lancewal_kafka.topic import TopicInspector
        except ImportError as error:
            raise InvalidInput("Token.at_end() needs Kafka's client: pip install 'lancewal[kafka]'") from error
        inspector = TopicInspector(kafka_options)
        ends = inspector.ends(topic, range(inspector.identify(topic).partitions))
        return Token({(topic, partition): end for partition, end in ends.items() if end > 0})

    def __or__(self, other: object) -> Token:
        return _joined([self, other]) if isinstance(other, Token) else NotImplemented

    def __str__(self) -> str:
        rows = (
            (topic, (partition, position, int((topic, partition) in self.records)))
            for (topic, partition), position in sorted(self.positions.items())
        )
        return checked(bytes([TOKEN]) + by_topic(rows))

    @staticmethod
    def parse(word: str) -> Token:
        """Return the token of a text: of the token's own text, or of a record's name such as ``orders-3-1841``.
        Raises ``InvalidInput`` for any other text.
        """
        stripped = word.strip()
        if not stripped.startswith(PREFIX):
            return _of_one(stripped)
        try:
            return _read(stripped)
        except ValueError as error:
            raise InvalidInput(f"not a token: {error}; give the whole text, from {PREFIX!r} on") from error


Least = Token | Receipt


def least_of(at_least: Least | str | bytes | None) -> Least | None:
    """Return the token that a read must reach, or the receipt that it must not be older than.  Raises ``InvalidInput``
    for anything else.
    """
    if at_least is None or isinstance(at_least, Token | Receipt):
        return at_least
    if not isinstance(at_least, str | bytes):
        raise InvalidInput(
            f"at_least={at_least!r:.{_SHOWN}} is not a token: give Token.of(report), a receipt, or the text of one of them"
        )
    word = at_least.strip() if isinstance(at_least, str) else at_least.decode(errors="replace").strip()
    return Receipt.parse(word) if word.startswith("{") or _is_receipt(word) else Token.parse(word)


def _is_receipt(word: str) -> bool:
    """Whether the text is an undamaged receipt.  Damaged text is read as a token, whose error says what is damaged."""
    try:
        return word.startswith(PREFIX) and unchecked(word)[:1] == bytes([RECEIPT])
    except ValueError:
        return False


def _joined(tokens: Iterable[Token]) -> Token:
    positions: dict[Partition, Position] = {}
    records: set[Partition] = set()
    for token in tokens:
        for partition, position in token.positions.items():
            known = positions.get(partition, -1)
            if position > known:
                records.discard(partition)
            if position >= known:
                positions[partition] = position
                records |= {partition} & token.records
    return Token(positions, frozenset(records))


def _of_one(record: object) -> Token:
    topic: object
    partition: object
    offset: object
    match record:
        case str():
            found = _RECORD.fullmatch(record)
            if found is None:
                raise InvalidInput(
                    f"{record[:_SHOWN]!r} is not a token: give {PREFIX}..., or a record as TOPIC-PARTITION-OFFSET"
                )
            topic, partition, offset = found[1], int(found[2]), int(found[3])
        case (topic, partition, offset):
            pass
        case _:
            topic, partition, offset = (_said(record, name) for name in ("topic", "partition", "offset"))
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
        raise InvalidInput(f"topic {topic!r:.{_SHOWN}} of a token is not a valid topic name")
    if not is_whole(partition) or not is_whole(offset) or partition > _PARTITION_MAX or offset >= WHOLE_MAX:
        raise InvalidInput(
            f"partition {partition!r:.{_SHOWN}}, offset {offset!r:.{_SHOWN}}: these do not name a delivered record of topic "
            f"{topic}"
        )
    return Token({(topic, partition): position_after(offset)}, frozenset({(topic, partition)}))


def _said(report: object, name: str) -> object:
    found = getattr(report, name, None)
    if found is None:
        raise InvalidInput(f"a {type(report).__name__} without {name} is not a record: give {_RECORDS}")
    return found() if callable(found) else found


def _read(word: str) -> Token:
    reader = Bytes(unchecked(word))
    if reader.number() != TOKEN:
        raise ValueError("it is of another kind, or of a newer release")
    positions: dict[Partition, Position] = {}
    records = set()
    for topic, (partition, position, of_record) in reader.by_topic(3):
        if not _TOPIC.fullmatch(topic):
            raise ValueError("a topic in it has no valid name")
        positions[topic, partition] = Position(position)
        if of_record:
            records.add((topic, partition))
    if 0 not in positions.values():
        token = Token(positions, frozenset(records))
        if not reader.left and str(token) == word:
            return token
    raise ValueError("it does not have the form of a token")
