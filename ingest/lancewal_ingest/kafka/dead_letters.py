"""Dead letters: bad records, unchanged, in a topic of their own, with the reason in headers of Kafka Connect.

Guarantees
 1. ``send`` returns once the broker has acknowledged every letter (all in-sync replicas).  Delivery is at least once:
    after a crash or an error a record may have two letters, with the same ``lancewal.source``.
 2. A letter has the key, value and headers of the bad record; our headers follow.  If a header of the record has one
    of our names, it is renamed to ``original.<name>``, so that only our headers have our names.
 3. If the record is ``too_large``, or the topic refuses the letter for its size, the letter is *cut*.  It has no value,
    none of the record's headers, and only the first ``KEY_BYTES_MAX`` of the key.  Three more headers give the lengths
    of what was cut.  If a record's headers cannot be read, its letter only lacks these headers, and
    ``lancewal.headers.bytes`` is ``unknown``.
 4. If the topic refuses a cut letter too, ``DeadLetterRefused`` names the first such record.  Letters before that
    record are acknowledged.
 5. At most ``AT_ONCE`` letters are made and sent at a time; the next ones follow once these are acknowledged.  A
    letter takes about 3 KB in this process and in the client for its headers, in addition to the record.
 6. Our headers hold places, kinds and expectations, never a value of the record or a setting.  The message has the
    name of an unexpected member or header, in ASCII and cut; the letter holds that name anyway.

==========================================  =========================================================================
header                                      value
==========================================  =========================================================================
``__connect.errors.topic``                  topic of the bad record
``__connect.errors.partition``              partition of the bad record
``__connect.errors.offset``                 offset of the bad record
``__connect.errors.connector.name``         the consumer group
``__connect.errors.task.id``                ``0``
``__connect.errors.stage``                  ``VALUE_CONVERTER``
``__connect.errors.class.name``             the kind, as in ``lancewal.kind``
``__connect.errors.exception.class.name``   ``lancewal.BadRecord``
``__connect.errors.exception.message``      what was expected, and the unexpected name
``lancewal.kind``                           the kind (``decode.outcomes.KINDS``, ``misrouted``, ``unreadable``)
``lancewal.source``                         ``<topic>-<partition>-<offset>``: the record's identity
``lancewal.key.bytes``                      of a cut letter: length of the record's key
``lancewal.value.bytes``                    of a cut letter: length of the record's value
``lancewal.headers.bytes``                  of a cut letter: length of the record's headers, names and values
==========================================  =========================================================================
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined] # imported there, not listed

from lancewal_core.errors import DeadLetterRefused, KafkaUnavailable, LancewalError, TopicMissing
from lancewal_core.names.ids import Region
from lancewal_core.process.progress import step
from lancewal_ingest.decode.operations import (
    CUT_HEADERS,
    KIND_HEADER,
    LETTER_HEADERS,
    ORIGINAL,
    SOURCE_HEADER,
    record_bytes,
)
from lancewal_ingest.decode.outcomes import TOO_LARGE, Rejected
from lancewal_kafka.clients import kafka_at, shared_properties
from lancewal_kafka.errors import error_of, explained, not_accepted
from lancewal_kafka.headers import UNREADABLE_HEADERS
from lancewal_kafka.records import Records
from lancewal_kafka.topic import TopicInspector

_CONNECT = "__connect.errors."
KEY_BYTES_MAX = 1_000
"""Largest number of bytes of the key in a cut letter: enough to recognize a key."""
AT_ONCE = 4_000
"""Largest number of letters that wait for their acknowledgement.  The size of the segment bounds the bytes of their
records."""
_KEY_BYTES, _VALUE_BYTES, _HEADERS_BYTES = CUT_HEADERS
_UNKNOWN = b"unknown"
_LARGEST_MESSAGE = 1_000_000_000
"""Upper limit of librdkafka's message.max.bytes, so that only the broker refuses letters for their size."""


@dataclass(frozen=True, slots=True)
class _Letter:
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    """Headers of the record itself."""
    ours: Sequence[tuple[str, bytes]]
    """Headers that lancewal adds (module docstring)."""

    def cut(self) -> _Letter:
        lengths = {
            _KEY_BYTES: len(self.key or b""),
            _VALUE_BYTES: len(self.value or b""),
            _HEADERS_BYTES: record_bytes(None, None, list(self.headers)),
        }
        told = dict(self.ours)
        ours = [*self.ours, *((name, str(length).encode()) for name, length in lengths.items() if name not in told)]
        return replace(self, key=self.key and self.key[:KEY_BYTES_MAX], value=None, headers=(), ours=ours)


@dataclass(eq=False)
class KafkaDeadLetters:
    """``DeadLetters`` in a Kafka topic.  Only one thread may call at a time."""

    client: Mapping[str, str] = field(repr=False)  # may hold a password
    """``bootstrap.servers`` and the pass-through properties."""
    topic: str
    group: str
    _: KW_ONLY
    acknowledge_s: float = 30.0
    """Largest number of seconds for which ``send`` waits for letters that are sent together."""
    failed: Callable[[], None] = lambda: None
    """Function that is called for each ``send`` that raises an error, before it is raised."""

    def __post_init__(self) -> None:
        self._producer = self._new_producer()

    def check(self) -> None:
        """Check that the topic exists and that this user may write to it.

        Raises ``TopicMissing`` or ``KafkaForbidden``, and ``KafkaUnavailable`` if the broker does not answer."""
        try:
            TopicInspector(self.client).check_right(self.topic, AclOperation.WRITE)
        except TopicMissing as error:
            raise no_dead_letter_topic(self.topic) from error

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        try:
            for begin in range(0, len(rejected), AT_ONCE):
                self._send(region, [self._letter(region, records, one) for one in rejected[begin : begin + AT_ONCE]])
        except LancewalError:
            self.failed()
            raise

    def _send(self, region: Region, letters: Sequence[_Letter]) -> None:
        # A batch that is refused may have been too large as a whole, so each of its letters is sent again: alone, then cut.
        for letter in self._deliver(letters):
            if self._deliver([letter]) and self._deliver([letter.cut()]):
                raise region.record_error(
                    DeadLetterRefused,
                    letter.offset,
                    f"the dead-letter topic {self.topic} refuses the record's letter for its size, even without the value. "
                    "Raise max.message.bytes of the dead-letter topic to at least 10000, and restart",
                )

    def _letter(self, region: Region, records: Records, rejected: Rejected) -> _Letter:
        at = bisect_left(records.offsets, rejected.offset)
        key, value, headers = records.keys[at], records.values[at], records.headers[at] or []
        ours = self._headers(region, rejected)
        if headers == UNREADABLE_HEADERS:
            headers, ours = [], [*ours, (_HEADERS_BYTES, _UNKNOWN)]
        letter = _Letter(rejected.offset, key, value, headers, ours)
        return letter.cut() if rejected.kind == TOO_LARGE else letter

    def _deliver(self, letters: Sequence[_Letter]) -> list[_Letter]:
        """Wait until all letters are acknowledged, and return those that the topic refuses for their size."""
        refused: list[_Letter] = []
        failures: list[KafkaError] = []
        acknowledged = 0

        for letter in letters:

            def delivered(error: KafkaError | None, _: Message, letter: _Letter = letter) -> None:
                nonlocal acknowledged
                if error is None:
                    acknowledged += 1
                elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    refused.append(letter)
                else:
                    failures.append(error)

            if not self._produce(letter, delivered):
                refused.append(letter)
        with step(f"sending to {self.topic}", asked=kafka_at(self.client.get("bootstrap.servers", ""))):
            waiting = self._producer.flush(self.acknowledge_s)
        if acknowledged + len(refused) == len(letters):
            return sorted(refused, key=lambda letter: letter.offset)
        if waiting or any(error.fatal() for error in failures):
            # Letters still queued would be sent later, unobserved.  After a fatal error a producer sends nothing.
            self._producer = self._new_producer()
        raise self._undelivered(failures, len(letters) - acknowledged)

    def _produce(self, letter: _Letter, delivered: Any) -> bool:
        """Queue a letter for sending; False if librdkafka refuses the letter for its size.

        ``delivered`` is called with the broker's answer."""
        headers = [*_renamed(letter.headers), *letter.ours]
        while True:
            try:
                self._producer.produce(self.topic, letter.value, letter.key, headers=headers, on_delivery=delivered)  # type: ignore[arg-type] # a header's value may be None
                return True
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                found = error_of(error)
                if found is not None and found.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    return False
                if found is not None and found.fatal():
                    self._producer = self._new_producer()
                raise self._explained(error, f"sending to the dead-letter topic {self.topic}") from error

    def _headers(self, region: Region, letter: Rejected) -> list[tuple[str, bytes]]:
        named = {
            f"{_CONNECT}topic": region.topic,
            f"{_CONNECT}partition": region.partition,
            f"{_CONNECT}offset": letter.offset,
            f"{_CONNECT}connector.name": self.group,
            f"{_CONNECT}task.id": 0,
            f"{_CONNECT}stage": "VALUE_CONVERTER",
            f"{_CONNECT}class.name": letter.kind,
            f"{_CONNECT}exception.class.name": "lancewal.BadRecord",
            f"{_CONNECT}exception.message": letter.with_name,
            KIND_HEADER: letter.kind,
            SOURCE_HEADER: f"{region.topic}-{region.partition}-{letter.offset}",
        }
        return [(name, str(value).encode()) for name, value in named.items()]

    def _undelivered(self, failures: Sequence[KafkaError], missing: int) -> LancewalError:
        act = f"sending to the dead-letter topic {self.topic}"
        if failures:
            return self._explained(KafkaException(failures[0]), act)
        return KafkaUnavailable(f"{act}: {missing} not acknowledged within {self.acknowledge_s} s", topic=self.topic)

    def _explained(self, error: BaseException, act: str) -> LancewalError:
        explanation = explained(error, act, self.topic)
        return no_dead_letter_topic(self.topic) if isinstance(explanation, TopicMissing) else explanation

    def _new_producer(self) -> Producer:
        properties: dict[str, Any] = {
            **shared_properties(self.client),
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": "lz4",
            "message.max.bytes": _LARGEST_MESSAGE,
            # The topic's limit holds for a batch: several small letters must not fail as one large one.
            "batch.size": 100_000,
            "delivery.timeout.ms": int(self.acknowledge_s * 1000),
        }
        try:
            return Producer(properties, logger=logging.getLogger("lancewal.kafka"))
        except (KafkaException, ValueError, TypeError) as error:
            raise not_accepted(error) from error


def no_dead_letter_topic(topic: str) -> TopicMissing:
    """Return the error for a dead-letter topic that does not exist."""
    return TopicMissing(
        f"the dead-letter topic {topic!r}, which the contract names (table.dead_letter_topic), does not exist: "
        "create it, or name another one by `lancewal table alter --dead-letter-topic`",
        topic=topic,
    )


def _renamed(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Return a record's own headers, renamed to ``original.<name>`` if they have one of our names."""
    return [
        (f"{ORIGINAL}{name}" if name in LETTER_HEADERS or name.startswith(_CONNECT) else name, value)
        for name, value in headers
    ]


class RefusedDeadLetters:
    """``DeadLetters`` for policies under which no record becomes a dead letter.  ``send`` is never called."""

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        raise AssertionError(f"region {region.name} has a dead letter, though no policy of its contract makes any")
