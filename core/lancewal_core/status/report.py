"""What ``lancewal status`` and a service's ``/status`` show: figures of the table and of its partitions, and the diagnoses.

As JSON it is one object with these fields; docs/reference/status.md is made of them.  ``null`` is "not known from here":
``unknown`` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lancewal_core.status.causes import Urgency
from lancewal_core.status.diagnose import Diagnosis, diagnose, overall
from lancewal_core.status.facts import PartitionFacts, Rejections, TableFacts


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Of one partition, positions in the order of a record's way."""

    partition: int
    """Kafka's number."""
    owner: str | None
    """Who claimed its newest generation."""
    start: int | None
    """The first offset that Kafka still has."""
    end: int | None
    """Position behind the last committed record in Kafka."""
    high: int | None
    """The same for all records: above ``end`` while a transaction is open."""
    consumed: int | None
    """Position up to which ingest has taken records; only its own page knows."""
    decoded: int | None
    """Position up to which they are rows or dead letters, perhaps not stored yet; only ingest's page knows."""
    durable: int | None
    """Position behind the newest WAL entry; null if nobody has claimed the partition."""
    flushed: int | None
    """Position up to which generations are flushed; null if none is."""
    merged: int | None
    """Position up to which the table's newest version holds the partition; null if nothing is merged."""
    read: int | None
    """Position up to which the version that a reader opens holds it: the newest, or that of ``--reader-version``."""
    lag: int | None
    """``high`` minus ``durable``: an upper bound of the records that are not durable."""
    freshness_s: float | None
    """Seconds for which its oldest record in Kafka waits that is not durable, 0 while none does; only ingest's page knows."""
    unmerged_s: float | None
    """For how many seconds its oldest generation that has ended waits for its merge, 0 while none does; ingest's page does not
    know."""
    merged_generation: int | None
    """Its newest merged generation; 0 if none is."""
    generations: Mapping[str, int]
    """Number of its generations by state, as its index says."""
    unmerged_rows: int
    """Changes in unmerged flushes, and rows in the WAL that no flush holds yet."""
    unmerged_bytes: int
    """Their bytes."""
    rejections: Rejections
    """Of the newest records that could be looked at: how many were rejected, how many became rows, the commonest reason,
    and one offset that was rejected for it."""
    diagnosis: Diagnosis
    """The first step that does not move, why, and what to do."""


@dataclass(frozen=True, slots=True)
class MergeDone:
    """A merge that this flusher made."""

    at_ms: int
    """When it had landed."""
    version: int
    """The table version that it made."""
    partitions: int
    """Of which generations were merged."""
    generations: int
    """How many."""
    rows: int
    """Rows that it added: adopted and written."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Of the table."""

    seen_by: str
    """Who looked: ``status`` (the command), ``ingest`` or ``flusher``."""
    at_ms: int
    """When, in milliseconds since 1970."""
    uri: str
    """The table's address."""
    table_uuid: str
    """Which table it is, wherever it lies."""
    table_version: int | None
    """Newest version of the Lance table."""
    table_rows: int | None
    """Rows in it."""
    table_fragments: int | None
    """Its fragments."""
    contract_version: int
    """Newest version of its contract."""
    topic: str
    """The topic that it is of."""
    topic_id: str
    """Kafka's id of that topic: another one is another topic."""
    topic_partitions: int
    """How many partitions it has, as the contract says."""
    primary_key: tuple[str, ...]
    """Its columns."""
    region_key: tuple[str, ...]
    """Columns that producers key by; empty where they key by other bytes."""
    group: str
    """Consumer group of ingest."""
    group_members: int | None
    """How many it has; null where Kafka does not say."""
    paused: Mapping[str, int | str]
    """Paused services, and until when: milliseconds since 1970, or ``resumed``."""
    last_merge_ms: int | None
    """When a merge landed last."""
    diagnosis: Diagnosis
    """The most urgent of ``partitions``, or what concerns the whole table."""
    partitions: tuple[PartitionStatus, ...]
    """All of the contract, or those that were named; of a service, those that it knows."""
    problems: tuple[str, ...]
    """Everything that wants a person; the exit code is 1 if there is one."""
    unknown: tuple[str, ...] = ()
    """What cannot be known from where one looks, and who knows it."""
    not_looked_at: tuple[str, ...] = ()
    """What strong reads need besides, and nobody has looked at."""
    keys_in_conflict: int = 0
    """Primary keys that came through two partitions, and wait for a decision."""
    recent_merges: tuple[MergeDone, ...] = field(default=())
    """The newest merges of this flusher, newest first."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is counted of a partition, beside what a diagnosis is made of."""

    facts: PartitionFacts
    merged_generation: int | None = None
    generations: Mapping[str, int] = field(default_factory=dict)
    unmerged_rows: int = 0
    unmerged_bytes: int = 0
    freshness_s: float | None = None


def partitions_of(table: TableFacts, figures: Iterable[Figures]) -> tuple[PartitionStatus, ...]:
    """Each with its diagnosis."""
    return tuple(_partition(table, found) for found in figures)


def problems_of(table: TableFacts, partitions: Sequence[PartitionStatus]) -> list[str]:
    """A text for each partition that wants a person; advice that several have stands in the first one's alone."""
    said: set[str] = set()
    problems = []
    for found in partitions:
        it = found.diagnosis
        if it.state is Urgency.PROBLEM:
            problems.append(
                f"topic {table.topic} partition {found.partition}: {it.message if it.do in said else it.text}"
            )
            said.add(it.do)
    return problems


def table_diagnosis(table: TableFacts, partitions: Sequence[PartitionStatus], *, all_of_them: bool = True) -> Diagnosis:
    """``all_of_them``: whether these are the table's partitions, as far as one knows them."""
    return overall(table, [found.diagnosis for found in partitions], all_of_them=all_of_them)


def _partition(table: TableFacts, figures: Figures) -> PartitionStatus:
    it = figures.facts
    kafka = it.kafka
    return PartitionStatus(
        partition=it.partition,
        owner=it.owner,
        start=None if kafka is None else kafka.low,
        end=None if kafka is None else kafka.end,
        high=None if kafka is None else kafka.high,
        consumed=it.consumed,
        decoded=it.decoded,
        durable=it.durable,
        flushed=it.flushed,
        merged=it.merged,
        read=it.read,
        lag=None if kafka is None or it.durable is None else max(0, kafka.high - it.durable),
        freshness_s=figures.freshness_s,
        unmerged_s=_unmerged_s(table.now_ms, it),
        merged_generation=figures.merged_generation,
        generations=figures.generations,
        unmerged_rows=figures.unmerged_rows,
        unmerged_bytes=figures.unmerged_bytes,
        rejections=it.rejections,
        diagnosis=diagnose(table, it),
    )


def _unmerged_s(now_ms: int, it: PartitionFacts) -> float | None:
    if it.merged is None and it.flushed is None and it.unmerged is None and it.sealed is None:
        return None
    since_ms = [found.since_ms for found in (it.unmerged, it.sealed) if found is not None]
    known_ms = [found for found in since_ms if found is not None]
    if since_ms and not known_ms:
        return None
    return max((max(0, now_ms - found) / 1000 for found in known_ms), default=0.0)
