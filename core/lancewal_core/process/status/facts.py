"""Facts about a table and its partitions, as any observer sees them.

``None`` means "not known from here", unless the field says otherwise.  A rule that needs an unknown fact says
nothing.  A problem or a waiting generation is None, too, if there is none.  Times are milliseconds since 1970.
Positions are Kafka's: the next offset, a boundary.
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
    """Offsets that Kafka has of a partition."""

    low: int
    """First offset that Kafka still has."""
    end: int
    """Position after the last committed record."""
    high: int
    """Position after the last record, committed or not: above ``end`` while a transaction is open."""
    recent: int
    """Offset of the first record that is not older than ``STANDS_S``; ``high`` if there is none."""


@dataclass(frozen=True, slots=True)
class Rejections:
    """Outcome of a partition's newest records that could be read: how many were rejected, and how many became rows."""

    records: int = 0
    """Number of these records that were rejected."""
    rows: int = 0
    """Number of these records that became rows."""
    kind: str = ""
    """Most frequent reason of these rejections; empty if there are none."""
    offset: int = -1
    """Offset of one record that was rejected for the reason ``kind``; -1 if there is none."""


@dataclass(frozen=True, slots=True)
class WaitingGeneration:
    """A generation of a partition that has not reached its next state, and since when."""

    generation: int
    since_ms: int | None = None
    """Time since which the generation could have reached its next state; None: not known."""
    rows: int = 0
    nbytes: int = 0
    due_ms: int | None = None
    """Latest time at which an OPEN generation is sealed, by the settings of this process."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Facts of one partition: its positions, its generations, and its problems."""

    topic: str
    partition: int
    kafka: KafkaSpan | None = None
    start: int | None = None
    """Position at which the contract lets the partition begin; None: the first offset that Kafka has."""
    claimed: bool | None = None
    """Whether an ingest process has ever opened the partition."""
    begun: int | None = None
    """Position at which the partition's first generation began."""
    owner: str | None = None
    consumed: int | None = None
    """Position up to which the partition's owner has taken records from Kafka; only the owner knows."""
    decoded: int | None = None
    """Position up to which the partition's owner has made rows or dead letters, perhaps not stored yet; only the
    owner knows."""
    durable: int | None = None
    flushed: int | None = None
    merged: int | None = None
    read: int | None = None
    """Position up to which the table version that a reader opens has the partition's records."""
    changed_ms: int | None = None
    """Time at which the partition's newest WAL entry, or its state, was written."""
    owner_wrote_ms: int | None = None
    """Time of the newest segment in the log of the partition's owner, for any partition."""
    rejections: Rejections = Rejections()
    misrouted_to: int | None = None
    """Partition to which the record at the durable position belongs, if it is another one; -1: to none.  Without
    ``misrouted_why`` this is only a hint."""
    misrouted_why: str = ""
    """Sentence about the record at the durable position: whether its key or its partition is wrong.  Empty if its row
    could not be read."""
    open: WaitingGeneration | None = None
    """The OPEN generation; None if it has no entries."""
    sealed: WaitingGeneration | None = None
    """The oldest generation that is sealed and not flushed, unless it is known to have no row."""
    unmerged: WaitingGeneration | None = None
    """The oldest generation that is flushed, not merged, and has rows."""
    stopped: Problem | None = None
    """Why the partition's owner has stopped it; None: it has not, or that is not known."""
    schema: Problem | None = None
    """Why the partition's owner has no schema for the next record yet; None: it needs none, or that is not known."""
    refused: Problem | None = None
    """Why the partition's owner could not open it at the last try; None: it could, or that is not known."""
    held: Problem | None = None
    """Why the flusher does not merge the partition, while it merges others; None: it does, or that is not known."""

    @property
    def begins(self) -> int | None:
        """Position from which on records are not durable; None: from the first offset that Kafka has."""
        return self.start if self.durable is None else self.durable


@dataclass(frozen=True, slots=True)
class TableFacts:
    """Facts of the whole table, at the time ``now_ms``."""

    now_ms: int
    topic: str
    kafka: Problem | None = None
    """Why the topic cannot be asked, or is not the contract's; None: no such fault."""
    members: int | None = None
    """Number of members of ingest's consumer group."""
    paused: Mapping[str, Until] = field(default_factory=dict)
    """Services that an operator has paused, and until when."""
    table_rows: int | None = None
    keys_in_conflict: int = 0
    """Number of primary keys that wait for a person's decision, as of the newest version."""
    version: int | None = None
    """Newest version of the Lance table."""
    read_version: int | None = None
    """Version of the Lance table that a reader was seen to have open."""
    merged_ms: int | None = None
    """Time of the newest merge."""
    merge_after_s: float = 60.0
    """Seconds that the flusher may leave flushed rows unmerged, by the settings of this process."""
    throttled: bool = False
    """Whether ingest's memory is full."""
    not_stored: Problem | None = None
    """Why ingest's segment in flight could not be stored at its last try; None: no such failure."""
    rounds: Problem | None = None
    """Why the flusher's rounds fail; None: they do not, or that is not known."""
