"""Which partitions go no further, as far as it can be told from outside: what is stored against what Kafka has.

Nothing stores that a partition has stopped, or why: only the process that has it knows, and its `/readyz` and its log say so.
What can be told without it:

 1. Kafka begins above the durable position: ``RetentionLost``.  It ends below it: ``TopicTruncated``.  Where ingest is at
    work just there, the two looks, one after the other, may not fit together: look again.
 2. Records that are older than ``STANDS_S`` wait, and for as long neither an entry of the region was written nor its index
    changed.  Then it has stopped, or no process has it.  Where the log of its owner took segments meanwhile, the process is
    at work: it has stopped.  Where all of them lie behind the beginning of a transaction that is still open, that is the
    reason.  Ages compare clocks and the records' own times, so this is a strong sign and no proof.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.ids import Position, Region
from lancewal_core.process.clock import utc_text

STANDS_S = 60.0
"""Longer than an ingest at work leaves a record undone, however far behind it is."""


@dataclass(frozen=True, slots=True)
class KafkaSpan:
    """What Kafka has of a partition."""

    low: Position
    """The first offset that it still has."""
    end: Position
    """The position behind the last committed record."""
    high: Position
    """The position behind the last record of all: above ``end`` while a transaction is open."""
    recent: Position
    """The first record that is not older than ``STANDS_S``; ``high`` if there is none."""


@dataclass(frozen=True, slots=True)
class Signs:
    """When something was last seen of a region, in milliseconds since 1970; 0 for never."""

    changed_at_ms: int
    """Its newest entry, or change of its index."""
    owner_wrote_at_ms: int
    """The newest segment of its owner's log."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """``kind``: that of the error, or ``stands`` where it is not known.  ``text``: for a person."""

    kind: str
    text: str


def gone_from_kafka(region: Region, durable: Position, span: KafkaSpan) -> Stopped | None:
    """The first case: Kafka cannot go on at the durable position."""
    if span.low > durable:
        return Stopped(
            "retention_lost",
            f"{_where(region)}: durable up to position {durable}, but Kafka begins at {span.low}: offsets {durable} to "
            f"{span.low - 1} were deleted before they became durable. To go on without them: "
            f"`lancewal offset accept-loss {region.topic}-{region.partition}`",
        )
    if durable > span.end:
        return Stopped(
            "topic_truncated",
            f"{_where(region)}: durable up to position {durable}, but Kafka ends at {span.end}: the topic lost its tail. Stop "
            "its producers; once you know why, go on behind what is durable: "
            f"`lancewal offset accept-loss {region.topic}-{region.partition}`. Where that was done, ingest waits until Kafka "
            "has grown up to there",
        )
    return None


def waits(durable: Position, span: KafkaSpan) -> bool:
    """Whether records older than ``STANDS_S`` wait: then ``stands`` is to be asked."""
    return span.recent > durable


def stands(region: Region, durable: Position, span: KafkaSpan, signs: Signs, now_ms: int) -> Stopped | None:
    """The second case, of a partition of which records wait."""
    since_ms = now_ms - STANDS_S * 1000
    if signs.changed_at_ms >= since_ms:
        return None
    if durable >= span.end:
        why = f"A transaction is open from position {span.end} on: what lies behind it cannot be read until it ends"
        return Stopped("stands", f"{_stands(region, durable, span, signs)}. {why}")
    if signs.owner_wrote_at_ms >= since_ms:
        why = "Its owner writes for other partitions, so this one has stopped"
    else:
        why = "It has stopped, or no ingest has it"
    return Stopped(
        "stands",
        f"{_stands(region, durable, span, signs)}. {why}; the log of ingest and its /readyz name the reason",
    )


def _stands(region: Region, durable: Position, span: KafkaSpan, signs: Signs) -> str:
    return (
        f"{_where(region)}: stands at position {durable} since {utc_text(signs.changed_at_ms)}, though records up to "
        f"position {span.high} wait"
    )


def _where(region: Region) -> str:
    return f"topic {region.topic} partition {region.partition}"
