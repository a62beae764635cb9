"""Every cause that may hold up records, declared once.  The reference page is generated from this list.

A cause has the step at which records stop, and a state.  A *problem* wants a person.  *Waits* goes on by itself, or
when an operator says so.  *Idle* means that there is nothing to do, *moving* that nothing is stalled.  ``seen`` says
who can tell the cause: whoever reads stored state and asks the brokers (``outside``), or the service that meets it
alone.

A partition that an error stops has that error's kind (docs/reference/errors.md) instead of a kind from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
    """Observer that can tell a cause."""

    OUTSIDE = "stored state and brokers"
    BROKERS = "brokers"
    INGEST = "ingest's page"
    FLUSHER = "the flusher's page"
    READER = "the reader's version"


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause that holds up records (module docstring)."""

    kind: str
    step: PathStep
    seen: SeenFrom
    meaning: str


KAFKA_NOT_ASKED = Cause(
    "kafka_not_asked",
    PathStep.KAFKA,
    SeenFrom.BROKERS,
    "The brokers cannot be asked, or have another topic; an error's kind.",
)
NOTHING_PRODUCED = Cause("nothing_produced", PathStep.KAFKA, SeenFrom.BROKERS, "The partition never had a record.")
RETENTION_PASSED = Cause(
    "retention_passed",
    PathStep.KAFKA,
    SeenFrom.BROKERS,
    "Kafka has deleted all records before the table's first claim.",
)
STARTS_BEHIND = Cause(
    "starts_behind", PathStep.KAFKA, SeenFrom.BROKERS, "Every record that Kafka has lies before the table's start."
)
RETENTION_LOST = Cause(
    "retention_lost",
    PathStep.KAFKA,
    SeenFrom.BROKERS,
    "Kafka has deleted records that were not durable; the error's kind.",
)
TOPIC_TRUNCATED = Cause(
    "topic_truncated", PathStep.KAFKA, SeenFrom.BROKERS, "Kafka ends below what is durable; the error's kind."
)
NO_INGEST = Cause("no_ingest", PathStep.CONSUMED, SeenFrom.OUTSIDE, "The consumer group has no member: no ingest runs.")
INGEST_PAUSED = Cause("ingest_paused", PathStep.CONSUMED, SeenFrom.OUTSIDE, "An operator has paused ingest.")
NOT_OPENED = Cause(
    "not_opened",
    PathStep.CONSUMED,
    SeenFrom.OUTSIDE,
    "Ingest runs, and has never opened the partition; its page knows why.",
)
CANNOT_OPEN = Cause(
    "cannot_open",
    PathStep.CONSUMED,
    SeenFrom.INGEST,
    "The owner of the partition cannot open it; the kind is that of the error.",
)
OPEN_TRANSACTION = Cause(
    "open_transaction",
    PathStep.CONSUMED,
    SeenFrom.BROKERS,
    "All that waits lies behind the beginning of an open transaction.",
)
THROTTLED = Cause("throttled", PathStep.CONSUMED, SeenFrom.INGEST, "Ingest's memory is full: it consumes nothing.")
STANDS = Cause(
    "stands", PathStep.CONSUMED, SeenFrom.OUTSIDE, "Records wait, and nothing becomes durable; ingest's page knows why."
)
STOPPED = Cause(
    "stopped",
    PathStep.DECODED,
    SeenFrom.INGEST,
    "The owner of the partition has stopped it; the kind is that of the error (the stored state tells `region_conflict` too).",
)
MISROUTED = Cause(
    "misrouted",
    PathStep.DECODED,
    SeenFrom.OUTSIDE,
    "The record at which it stands belongs to another partition by its key.",
)
ALL_REJECTED = Cause(
    "all_rejected", PathStep.DECODED, SeenFrom.OUTSIDE, "None of the newest records became a row: all are dead letters."
)
NOT_STORED = Cause(
    "not_stored",
    PathStep.DURABLE,
    SeenFrom.INGEST,
    "Store or dead-letter topic take nothing; the kind is that of the error.",
)
SEAL_LIMITS = Cause(
    "seal_limits", PathStep.FLUSHED, SeenFrom.OUTSIDE, "Rows are durable, and their MemTable has reached no limit yet."
)
SEAL_OVERDUE = Cause(
    "seal_overdue", PathStep.FLUSHED, SeenFrom.OUTSIDE, "A MemTable is past its age, and its owner does not seal it."
)
ABANDONED = Cause(
    "abandoned",
    PathStep.FLUSHED,
    SeenFrom.OUTSIDE,
    "Rows are durable, and no ingest runs that would seal and flush them.",
)
FLUSH_UNDER_WAY = Cause(
    "flush_under_way", PathStep.FLUSHED, SeenFrom.OUTSIDE, "A sealed generation is about to be flushed."
)
NOT_FLUSHED = Cause(
    "not_flushed",
    PathStep.FLUSHED,
    SeenFrom.OUTSIDE,
    "A sealed generation is flushed by nobody: no ingest, and no flusher.",
)
FLUSHER_PAUSED = Cause("flusher_paused", PathStep.MERGED, SeenFrom.OUTSIDE, "An operator has paused the flusher.")
ROUNDS_FAIL = Cause(
    "rounds_fail", PathStep.MERGED, SeenFrom.FLUSHER, "The flusher's rounds fail; the kind is that of the error."
)
HELD_BACK = Cause(
    "held_back", PathStep.MERGED, SeenFrom.FLUSHER, "Others are merged, this one not; the kind is that of the error."
)
MERGE_DUE = Cause("merge_due", PathStep.MERGED, SeenFrom.OUTSIDE, "Flushed rows wait for the next merge.")
PASSED_BY = Cause(
    "passed_by",
    PathStep.MERGED,
    SeenFrom.OUTSIDE,
    "Merges land, and leave this partition; the flusher's page knows why.",
)
NO_FLUSHER = Cause(
    "no_flusher",
    PathStep.MERGED,
    SeenFrom.OUTSIDE,
    "No merge has landed for long: no flusher runs, or its rounds fail.",
)
READER_BEHIND = Cause(
    "reader_behind", PathStep.READ, SeenFrom.READER, "The version that the reader has open lacks what is merged."
)
NO_ROWS_LEFT = Cause(
    "no_rows_left",
    PathStep.READ,
    SeenFrom.OUTSIDE,
    "All is merged, and no row is left: deleted, expired, rejected, or in conflict.",
)
CAUGHT_UP = Cause("caught_up", PathStep.READ, SeenFrom.OUTSIDE, "All that is known of has come to the end of the way.")
MOVING = Cause("moving", PathStep.CONSUMED, SeenFrom.OUTSIDE, "Records come, and nothing stands.")
UNKNOWN = Cause("unknown", PathStep.READ, SeenFrom.OUTSIDE, "The facts that are known from here do not tell.")

CAUSES: tuple[Cause, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Cause))
"""All causes, in the order of a record's steps."""
