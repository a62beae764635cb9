"""Facts seen of a table and of its partitions, by any observer.

``None`` always means "not known from here", never "nothing": a rule that needs an unknown fact says nothing.  Times are
milliseconds since 1970.  Positions are Kafka's: the next offset, a boundary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lancewal_core.errors import Problem
from lancewal_core.table.control import Until

STANDS_S = 60.0
"""Seconds without progress after which a step counts as stalled.  A working service leaves no work undone for so long."""


@dataclass(frozen=True, slots=True)
class KafkaSpan:
    """The offsets that Kafka has of a partition."""

    low: int
    """The first offset that Kafka still has."""
    end: int
    """The position after the last committed record."""
    high: int
    """The position after the last record of all: above ``end`` while a transaction is open."""
    recent: int
    """The offset of the first record that is not older than ``STANDS_S``; ``high`` if there is none."""


@dataclass(frozen=True, slots=True)
class Rejections:
    """Number of rejected records among the newest records that could be read."""

    records: int = 0
    """Number of records that were rejected."""
    rows: int = 0
    """Number of records, among the newest that could be seen, that became rows."""
    kind: str = ""
    """The commonest reason."""
    offset: int = -1
    """Offset of one record that was rejected for this reason; -1 if none was."""


@dataclass(frozen=True, slots=True)
class WaitingGeneration:
    """A generation that has not reached its next state."""

    generation: int
    since_ms: int | None = None
    """Time since which the generation could go on; None: not known."""
    rows: int = 0
    nbytes: int = 0
    due_ms: int | None = None
    """Latest time at which an OPEN generation is sealed, by the settings of this process."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Facts of one partition."""

    topic: str
    partition: int
    kafka: KafkaSpan | None = None
    start: int | None = None
    """Position where the contract begins; None: at the first offset that Kafka has."""
    claimed: bool | None = None
    """Whether an ingest has ever opened it."""
    begun: int | None = None
    """Position where its first generation began."""
    owner: str | None = None
    consumed: int | None = None
    """Position up to which its owner has taken records from Kafka; only the owner knows."""
    decoded: int | None = None
    """Position up to which its owner has made rows or dead letters, perhaps not stored yet; only the owner knows."""
    durable: int | None = None
    flushed: int | None = None
    merged: int | None = None
    read: int | None = None
    """Position up to which the version that a reader opens holds the partition."""
    changed_ms: int | None = None
    """Time at which the newest WAL entry, or the partition's state, was written."""
    owner_wrote_ms: int | None = None
    """Time of the newest segment in the owner's log, for any partition."""
    rejections: Rejections = Rejections()
    misrouted_to: int | None = None
    """Partition to which the record at the durable position belongs, if it is another one; -1: to none.  Without
    ``misrouted_why`` this is only a hint."""
    misrouted_why: str = ""
    """Whether that record's key or its partition is wrong, as a sentence; empty if its row could not be read."""
    open: WaitingGeneration | None = None
    """The OPEN generation, if it has entries."""
    sealed: WaitingGeneration | None = None
    """The oldest generation that is sealed and not flushed, unless it is known to have no row."""
    unmerged: WaitingGeneration | None = None
    """The oldest generation that is flushed and not merged, and has rows."""
    stopped: Problem | None = None
    """Why its owner has stopped it."""
    schema: Problem | None = None
    """Why its owner has no schema for the next record yet."""
    refused: Problem | None = None
    """Why its owner could not open it at the last try."""
    held: Problem | None = None
    """Why the flusher does not merge it, while it merges others."""

    @property
    def begins(self) -> int | None:
        """Position from which on records are not durable."""
        return self.start if self.durable is None else self.durable


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Facts of the whole table, at one moment."""

    now_ms: int
    topic: str
    kafka: Problem | None = None
    """Fault if the topic cannot be asked, or is not the contract's."""
    members: int | None = None
    """Members of ingest's consumer group."""
    paused: Mapping[str, Until] = field(default_factory=dict)
    """Services that an operator has paused, and until when."""
    table_rows: int | None = None
    keys_in_conflict: int = 0
    """Number of keys that wait for a person's decision, as of the newest version."""
    version: int | None = None
    """Newest version of the Lance table."""
    read_version: int | None = None
    """The version that a reader was seen to have open."""
    merged_ms: int | None = None
    """Time of the last merge."""
    merge_after_s: float = 60.0
    """Seconds that the flusher may leave flushed rows unmerged, by the settings of this process."""
    throttled: bool = False
    """Ingest's memory is full."""
    not_stored: Problem | None = None
    """Why ingest's segment in flight could not be stored at its last try."""
    rounds: Problem | None = None
    """Why the flusher's rounds fail."""
