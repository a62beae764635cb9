"""All causes that may hold up records, each declared once.  The reference page is generated from this list.

A cause has the step at which records stop, and the state of its diagnosis.  A *problem* needs a person.  *Waits* goes
on by itself, or when an operator says so.  *Idle* means that there is nothing to do, *moving* that nothing is
stalled.  Some diagnoses have the milder state *waits* as long as the delay is short.  ``seen`` says who can find the
cause: any process that reads stored state and asks the brokers, or only a process that knows more.

A partition that an error stops has that error's kind (docs/reference/errors.md) instead of a kind from here.
"""

from __future__ import annotations

from enum import Enum, StrEnum


class PathStep(StrEnum):
    """Steps of a record from Kafka to a reader, in order."""

    KAFKA = "kafka"
    CONSUMED = "consumed"
    DECODED = "decoded"
    DURABLE = "durable"
    FLUSHED = "flushed"
    MERGED = "merged"
    READ = "read"


class Urgency(StrEnum):
    """How urgently a diagnosis needs a person; the most urgent first."""

    PROBLEM = "problem"
    WAITS = "waits"
    MOVING = "moving"
    IDLE = "idle"


class SeenFrom(StrEnum):
    """Observers that can find a cause: a command, or a service."""

    OUTSIDE = "stored state and brokers"
    BROKERS = "brokers"
    INGEST = "ingest's `/status`"
    FLUSHER = "the flusher's `/status`"
    READER = "the reader's version"


KAFKA, CONSUMED, DECODED, DURABLE, FLUSHED, MERGED, READ = PathStep
OUTSIDE, BROKERS, INGEST, FLUSHER, READER = SeenFrom
WAITS, IDLE = Urgency.WAITS, Urgency.IDLE


class Cause(Enum):
    """Causes that hold up records (module docstring), in the order of a record's steps."""

    def __init__(self, step: PathStep, seen: SeenFrom, meaning: str, state: Urgency = Urgency.PROBLEM) -> None:
        self.step = step
        self.seen = seen
        self.meaning = meaning
        self.state = state

    @property
    def kind(self) -> str:
        """The member's name in lower case."""
        return self.name.lower()

    KAFKA_NOT_ASKED = (KAFKA, BROKERS, "The brokers cannot be asked, or have another topic; the kind is the error's.")
    NOTHING_PRODUCED = (KAFKA, BROKERS, "The partition never had a record.", IDLE)
    RETENTION_PASSED = (KAFKA, BROKERS, "Kafka had deleted all records of the partition before the table began.", IDLE)
    STARTS_BEHIND = (
        KAFKA,
        BROKERS,
        "All records that Kafka has are before the position at which the table starts.",
        IDLE,
    )
    RETENTION_LOST = (KAFKA, BROKERS, "Kafka has deleted records that were not durable; the kind is that of the error.")
    TOPIC_TRUNCATED = (KAFKA, BROKERS, "Kafka ends below the durable position; the kind is that of the error.")
    NO_INGEST = (CONSUMED, OUTSIDE, "The consumer group has no member: no ingest runs.")
    INGEST_PAUSED = (CONSUMED, OUTSIDE, "An operator has paused ingest.", WAITS)
    NOT_OPENED = (CONSUMED, OUTSIDE, "Ingest runs, and has never opened the partition; its /status names the reason.")
    CANNOT_OPEN = (CONSUMED, INGEST, "The owner of the partition cannot open it; the kind is that of the error.")
    OPEN_TRANSACTION = (CONSUMED, BROKERS, "All waiting records are after the beginning of an open transaction.")
    THROTTLED = (CONSUMED, INGEST, "Ingest's memory is full: it consumes nothing.", WAITS)
    STANDS = (CONSUMED, OUTSIDE, "Records wait, and nothing becomes durable; ingest's /status names the reason.")
    WAITS_FOR_SCHEMA = (
        DECODED,
        INGEST,
        "The schema registry has not answered for a schema that the next record names; the kind is that of the error.",
    )
    STOPPED = (
        DECODED,
        INGEST,
        "The owner of the partition has stopped it; the kind is that of the error. "
        "`region_conflict` is also found from the stored state.",
    )
    MISROUTED = (DECODED, OUTSIDE, "The next record of the partition belongs to another partition by its key.")
    ALL_REJECTED = (
        DECODED,
        OUTSIDE,
        "None of the newest records became a row: all are dead letters. Ignored ones do not count.",
    )
    NOT_STORED = (DURABLE, INGEST, "The store or the dead-letter topic accepts nothing; the kind is that of the error.")
    SEAL_LIMITS = (FLUSHED, OUTSIDE, "Rows are durable, and their MemTable has reached no limit yet.", WAITS)
    SEAL_OVERDUE = (FLUSHED, OUTSIDE, "A MemTable is past its age, and its owner does not seal it.")
    ABANDONED = (FLUSHED, OUTSIDE, "Rows are durable, and no ingest runs that would seal and flush them.")
    FLUSH_UNDER_WAY = (FLUSHED, OUTSIDE, "A sealed generation is about to be flushed.", WAITS)
    NOT_FLUSHED = (FLUSHED, OUTSIDE, "No process flushes a sealed generation: no ingest, and no flusher.")
    FLUSHER_PAUSED = (MERGED, OUTSIDE, "An operator has paused the flusher.", WAITS)
    ROUNDS_FAIL = (MERGED, FLUSHER, "The flusher's rounds fail; the kind is that of the error.")
    HELD_BACK = (MERGED, FLUSHER, "Other partitions are merged, this one is not; the kind is that of the error.")
    MERGE_DUE = (MERGED, OUTSIDE, "Flushed rows wait for the next merge.", WAITS)
    PASSED_BY = (MERGED, OUTSIDE, "Merges land, but skip this partition; the flusher's /status names the reason.")
    NO_FLUSHER = (MERGED, OUTSIDE, "No merge has landed for long: no flusher runs, or its rounds fail.")
    READER_BEHIND = (READ, READER, "The version that the reader has open lacks merged records.")
    NO_ROWS_LEFT = (
        READ,
        OUTSIDE,
        "All records are merged, and no row is left: deleted, expired, rejected, or in conflict.",
        IDLE,
    )
    CAUGHT_UP = (READ, OUTSIDE, "All known records are merged and readable.", IDLE)
    MOVING = (CONSUMED, OUTSIDE, "Records arrive, and nothing is stalled.", Urgency.MOVING)
    UNKNOWN = (READ, OUTSIDE, "The known facts do not tell the cause.", IDLE)
