"""Dead letters: bad records, unchanged, in a topic of their own, with what is wrong in Kafka Connect's headers.

Guarantees
 1. ``send`` returns once the broker has acknowledged every record (all in-sync replicas).  At least once: after a
    crash or an error a record may be there twice, with the same ``lancewal.source``.
 2. Key, value and headers are those of the bad record; ours come after them.  A header of the record that has a name
    of ours is there as ``original.<name>``: under our names are our headers alone.
 3. If the record is ``too_large``, or the topic refuses the letter for its size, the letter is *cut*: no value, none
    of the record's headers, and the first ``KEY_BYTES_MAX`` of its key.  Three headers more say how long they were.
    A letter whose record's headers cannot be read lacks these alone; ``lancewal.headers.bytes`` is then ``unknown``.
 4. If the topic refuses that too, ``DeadLetterRefused`` names the first such record; letters before it are
    acknowledged.
 5. Letters are made and sent ``AT_ONCE``, and the next ones once these are acknowledged: with its headers a letter
    takes some 3 KB here and in the client, whatever its record took.
 6. Our headers hold places, kinds and expectations, never a value of the record, and no setting.  The name of a
    member or header that was not expected is in the message, in ASCII and cut: the letter has it anyway.

====================================  ==============================================================================
header                                value ====================================
============================================================================== ``__connect.errors.topic``
topic of the bad record ``__connect.errors.partition``        its partition ``__connect.errors.offset``           its
offset ``__connect.errors.connector.name``   the consumer group ``__connect.errors.task.id``          ``0``
``__connect.errors.stage``            ``VALUE_CONVERTER`` ``__connect.errors.class.name``       the kind, as in
``lancewal.kind`` ``__connect.errors.exception.class.name``  ``lancewal.BadRecord``
``__connect.errors.exception.message``  what was expected, and the name that was not ``lancewal.kind``
the kind (``decode.outcomes.KINDS``, ``misrouted``, ``unreadable``) ``lancewal.source``
``<topic>-<partition>-<offset>``: the record's identity ``lancewal.key.bytes``                of a cut letter: length
of the record's key ``lancewal.value.bytes``              of its value ``lancewal.headers.bytes``            of its
headers, names and values ====================================
==============================================================================
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from lancewal_kafka.records import UNREADABLE_HEADERS, Records
from lancewal_kafka.topic import TopicInspector

_CONNECT = "__connect.errors."
KEY_BYTES_MAX = 1_000
"""Most bytes of a key in a cut letter: enough to recognize a key."""
AT_ONCE = 4_000
"""Most letters that wait for their acknowledgement.  What their records hold is bounded by the segment that they are of."""
_KEY_BYTES, _VALUE_BYTES, _HEADERS_BYTES = CUT_HEADERS
_UNKNOWN = b"unknown"
_FOUND_MAX = 100
"""Most characters of a name in a message."""
_LARGEST_MESSAGE = 1_000_000_000
"""librdkafka's upper bound: what is too large is for the broker to say."""


@dataclass(frozen=True, slots=True)
class _Letter:
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    """Headers of the record itself."""
    ours: Sequence[tuple[str, bytes]]

    def cut(self) -> _Letter:
        lengths = {
            _KEY_BYTES: len(self.key or b""),
            _VALUE_BYTES: len(self.value or b""),
            _HEADERS_BYTES: record_bytes(None, None, list(self.headers)),
        }
        told = dict(self.ours)
        ours = [*self.ours, *((name, str(length).encode()) for name, length in lengths.items() if name not in told)]
        return replace(self, key=self.key and self.key[:KEY_BYTES_MAX], value=None, headers=(), ours=ours)


class KafkaDeadLetters:
    """``DeadLetters`` in a Kafka topic; ``client`` holds ``bootstrap.servers`` and the pass-through properties.

    ``acknowledge_s`` bounds how long ``send`` waits for letters that are sent together.  One thread at a time.
    """

    def __init__(self, client: Mapping[str, str], topic: str, group: str, *, acknowledge_s: float = 30.0) -> None:
        self.topic = topic
        self._group = group
        self._acknowledge_s = acknowledge_s
        self._client = client
        self._producer = self._new_producer()

    def check(self) -> None:
        """The topic must exist, and take letters from this user: ``TopicMissing`` and ``KafkaForbidden`` say what to do.
        ``KafkaUnavailable`` if the broker is silent."""
        try:
            TopicInspector(self._client).check_right(self.topic, AclOperation.WRITE)
        except TopicMissing as error:
            raise no_dead_letter_topic(self.topic) from error

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        for begin in range(0, len(rejected), AT_ONCE):
            self._send(region, [self._letter(region, records, one) for one in rejected[begin : begin + AT_ONCE]])

    def _send(self, region: Region, letters: Sequence[_Letter]) -> None:
        # A batch that is refused may have been too large as a whole, so each of its letters is sent again: alone, then cut.
        for letter in self._deliver(letters):
            if self._deliver([letter]) and self._deliver([letter.cut()]):
                raise DeadLetterRefused(
                    f"topic {region.topic} partition {region.partition} offset {letter.offset}: the dead-letter topic "
                    f"{self.topic} refuses its letter for its size, even without the record's value. Raise the topic's "
                    "max.message.bytes to 10000 at least, and restart",
                    **region.place,
                    offset=letter.offset,
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
        with step(f"sending to {self.topic}", asked=kafka_at(self._client.get("bootstrap.servers", ""))):
            waiting = self._producer.flush(self._acknowledge_s)
        if acknowledged + len(refused) == len(letters):
            return sorted(refused, key=lambda letter: letter.offset)
        if waiting or any(error.fatal() for error in failures):
            # What is still queued would be sent later, behind our back; a producer after a fatal error sends nothing.
            self._producer = self._new_producer()
        raise self._undelivered(failures, len(letters) - acknowledged)

    def close(self) -> None:
        self._producer.flush(0)

    def _produce(self, letter: _Letter, delivered: Any) -> bool:
        """False if it is larger than any message can be."""
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
            f"{_CONNECT}connector.name": self._group,
            f"{_CONNECT}task.id": 0,
            f"{_CONNECT}stage": "VALUE_CONVERTER",
            f"{_CONNECT}class.name": letter.kind,
            f"{_CONNECT}exception.class.name": "lancewal.BadRecord",
            f"{_CONNECT}exception.message": letter.message + _found(letter.found),
            KIND_HEADER: letter.kind,
            SOURCE_HEADER: f"{region.topic}-{region.partition}-{letter.offset}",
        }
        return [(name, str(value).encode()) for name, value in named.items()]

    def _undelivered(self, failures: Sequence[KafkaError], missing: int) -> LancewalError:
        act = f"sending to the dead-letter topic {self.topic}"
        if failures:
            return self._explained(KafkaException(failures[0]), act)
        return KafkaUnavailable(f"{act}: {missing} not acknowledged within {self._acknowledge_s} s", topic=self.topic)

    def _explained(self, error: BaseException, act: str) -> LancewalError:
        explanation = explained(error, act, self.topic)
        return no_dead_letter_topic(self.topic) if isinstance(explanation, TopicMissing) else explanation

    def _new_producer(self) -> Producer:
        properties: dict[str, Any] = {
            **shared_properties(self._client),
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "compression.type": "lz4",
            "message.max.bytes": _LARGEST_MESSAGE,
            # The topic's limit holds for a batch: several small letters must not fail as one large one.
            "batch.size": 100_000,
            "delivery.timeout.ms": int(self._acknowledge_s * 1000),
        }
        try:
            return Producer(properties, logger=logging.getLogger("lancewal.kafka"))
        except (KafkaException, ValueError, TypeError) as error:
            raise not_accepted(error) from error


def no_dead_letter_topic(topic: str) -> TopicMissing:
    """The error of a dead-letter topic that is not there."""
    return TopicMissing(
        f"the dead-letter topic {topic!r}, which the contract names (table.dead_letter_topic), does not exist: "
        "create it, or name another one by `lancewal table alter --dead-letter-topic`",
        topic=topic,
    )


def _found(name: str) -> str:
    if not name:
        return ""
    text = ascii(name[:_FOUND_MAX])
    return f". Found: {text if len(text) <= _FOUND_MAX else f'{text[:_FOUND_MAX]}...'}"


def _renamed(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Return a record's own headers, renamed so that none passes for one of ours."""
    return [
        (f"{ORIGINAL}{name}" if name in LETTER_HEADERS or name.startswith(_CONNECT) else name, value)
        for name, value in headers
    ]


class RefusedDeadLetters:
    """``DeadLetters`` if the contract's policies make none: a record stops its partition before it gets here."""

    def send(self, region: Region, records: Records, rejected: Sequence[Rejected]) -> None:
        raise AssertionError(f"a dead letter of {region.name} under policies that make none")
