"""Reading records of a partition again, by a consumer that joins no group and commits nothing.

Guarantees
 1. ``consumed`` gives the committed records of [first, end) in offset order, each once.  It ends once it has given
    all of them.  Otherwise it raises ``OutOfRange`` (Kafka has deleted the next record), ``RecordsUnreadable`` (after
    it has given all readable records before the unreadable batch), or ``KafkaUnavailable`` (the broker is silent
    before the end).
 2. ``read_records`` gives the first of these records, and stops before they take much memory.  If the very first
    cannot be read, ``where["behind"]`` of ``RecordsUnreadable`` is the position after the unreadable batch.
"""

from __future__ import annotations

import contextlib
import logging
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lancewal_core.errors import KafkaUnavailable, RecordsUnreadable, RetentionLost
from lancewal_core.names.ids import Position, Region, position_after
from lancewal_core.process.progress import step
from lancewal_kafka.clients import REQUEST_TIMEOUT_S, Properties, kafka_at, lone_consumer_properties
from lancewal_kafka.errors import UNREADABLE, explained, text_of, unreadable
from lancewal_kafka.records import Records, as_records

QUEUE_BYTES = 32 << 20
_SHORT_QUEUE_BYTES = 8 << 20
_RECORDS = 20_000
_FEW_RECORDS = 500
_WAIT_S = 0.5
_GATHER_S = 0.01
SILENT_S = 30.0
"""Seconds without progress, before the end is reached, after which ``consumed`` counts the broker as silent."""
_PROBE_S = 5.0
"""Seconds that a search for the end of an unreadable batch waits for a record at a position.  If none comes, only
transaction markers or aborted records are assumed to be there."""
READ_RECORDS_MAX = 10_000
READ_BYTES_MAX = 32 << 20
"""Bytes of record values after which ``read_records`` stops.  Records that arrived together are returned together, so
the result may be larger."""


class OutOfRange(Exception):
    """Kafka has deleted records that were about to be read."""


class _LoneConsumer(Consumer):
    """Consumer that knows its brokers' name for messages and progress lines (``asked``)."""

    asked = ""


@contextlib.contextmanager
def lone_consumer(
    client: Mapping[str, str], group: str, topic: str, queue_bytes: int = QUEUE_BYTES, more: Properties | None = None
) -> Iterator[Consumer]:
    """Yield a consumer that joins no group.  ``group`` is its ``group.id``.  Kafka's errors inside ``with`` become
    errors of lancewal.  ``more`` are further properties of the consumer."""
    properties: dict[str, Any] = {**lone_consumer_properties(client, group, queue_bytes), **(more or {})}
    try:
        made = _LoneConsumer(properties, logger=logging.getLogger("lancewal.kafka"))
        made.asked = kafka_at(client.get("bootstrap.servers", ""))
        with contextlib.closing(made) as consumer:
            yield consumer
    except KafkaException as error:
        raise explained(error, f"reading topic {topic}", topic) from error


def consumed(
    consumer: Consumer,
    region: Region,
    first: Position,
    end: Position,
    at_once: int = _RECORDS,
    silent_s: float = SILENT_S,
) -> Iterator[Records]:
    """Yield the committed records of [first, end) as they come, in offset order (guarantee 1).

    Transaction markers and aborted records are left out, but the position moves past them.  ``at_once`` bounds the
    records yielded together.  ``silent_s``: see ``SILENT_S``.
    """
    asked = getattr(consumer, "asked", "")
    place = TopicPartition(region.topic, region.partition, first)
    consumer.assign([place])
    heard_at = time.monotonic()
    position = first
    with step(f"reading {region.topic}-{region.partition}", end - first, "offsets", asked=asked) as told:
        while position < end:
            messages = consumer.consume(1, _WAIT_S)
            if messages:
                messages += consumer.consume(at_once - 1, _GATHER_S)
            good: list[Message] = []
            reason: str | None = None
            for message in messages:
                reason = _unreadable(message)
                if reason is not None:
                    break  # what lies behind it is of no use
                if _is_record(message, region):
                    good.append(message)
            if good:
                records = as_records(good)
                wanted = between(records, position, end)
                if len(wanted):
                    told.asked = ""  # the caller works; nobody is asked
                    yield wanted
                    told.asked = asked
                position = max(position, position_after(records.offsets[-1]))
            if reason is not None:
                raise unreadable(region.topic, region.partition, position, reason)
            (at,) = consumer.position([place])
            if good or at.offset > position:
                heard_at, position = time.monotonic(), max(position, Position(at.offset))
                told.done = min(position, end) - first
            elif time.monotonic() - heard_at > silent_s:
                raise region.partition_error(
                    KafkaUnavailable,
                    f"no record came for {silent_s:g} s at position {position}, but records before position {end} are "
                    "needed: check the brokers and the network, and try again",
                )


def read_records(
    client: Mapping[str, str], group: str, region: Region, first: Position, end: Position
) -> tuple[Records, Position]:
    """Return the first committed records of [first, end), and the position up to which they are complete.

    That position is below ``end`` if there are more records than are returned at once, or if a later batch cannot be
    read.  ``end`` must not be above Kafka's end.  Raises ``RetentionLost`` if Kafka has deleted a record before it
    was read, and ``KafkaUnavailable`` if no broker answers.  ``RecordsUnreadable``: see guarantee 2.
    """
    found, nbytes = Records([], [], [], [], []), 0
    try:
        with lone_consumer(client, group, region.topic, _SHORT_QUEUE_BYTES) as consumer:
            for records in consumed(consumer, region, first, end, _FEW_RECORDS, REQUEST_TIMEOUT_S):
                found.extend(records)
                nbytes += sum(len(value or b"") for value in records.values)
                if len(found) >= READ_RECORDS_MAX or nbytes >= READ_BYTES_MAX:
                    return found, position_after(found.offsets[-1])
    except RecordsUnreadable as error:
        at = Position(int(str(error.where["offset"])))
        if len(found):
            return found, at
        raise RecordsUnreadable(
            str(error), **{**error.where, "behind": _behind_unreadable(client, group, region, at)}
        ) from error
    except OutOfRange:
        raise region.partition_error(
            RetentionLost, f"Kafka deleted offset {first} or later ones before they were read"
        ) from None
    return found, end


def between(records: Records, low: Position, high: Position) -> Records:
    """Return the records with offsets in [low, high)."""
    return records.part(bisect_left(records.offsets, low), bisect_left(records.offsets, high))


def _behind_unreadable(client: Mapping[str, str], group: str, region: Region, at: Position) -> Position:
    """Return the position after the batch that cannot be read at ``at``.

    A read from any offset of a batch meets the whole batch, and the error has the batch's first offset.  The search
    doubles its steps until it is past the batch, then halves the range.
    """
    with lone_consumer(client, group, region.topic, _SHORT_QUEUE_BYTES) as consumer:
        place = TopicPartition(region.topic, region.partition)
        _, end = consumer.get_watermark_offsets(place, timeout=REQUEST_TIMEOUT_S)
        batch = _unreadable_batch(consumer, region, at)
        inside, step = at, 1
        behind = Position(min(at + step, end))
        while behind < end and _unreadable_batch(consumer, region, behind) == batch is not None:
            inside, step = behind, step * 2
            behind = Position(min(inside + step, end))
        while behind - inside > 1:
            middle = Position((inside + behind) // 2)
            if _unreadable_batch(consumer, region, middle) == batch:
                inside = middle
            else:
                behind = middle
        return behind


def _unreadable_batch(consumer: Consumer, region: Region, position: Position) -> int | None:
    """Return the first offset of an unreadable batch that a read from ``position`` meets; None if it meets none."""
    consumer.assign([TopicPartition(region.topic, region.partition, position)])
    until = time.monotonic() + _PROBE_S
    while time.monotonic() < until:
        message = consumer.poll(_WAIT_S)
        if message is None:
            continue
        if _unreadable(message) is not None:
            return message.offset()
        if _is_record(message, region):
            return None
    return None


def _unreadable(message: Message) -> str | None:
    """Return the reason if the message says that a batch cannot be read; None for any other message."""
    error = message.error()
    return text_of(error) if error is not None and error.code() in UNREADABLE else None


def _is_record(message: Message, region: Region) -> bool:
    error = message.error()
    if error is None:
        return message.partition() == region.partition
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise OutOfRange
    if error.fatal() or not error.retriable():
        raise KafkaException(error)
    return False
