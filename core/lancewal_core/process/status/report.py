"""Report of ``lancewal status`` and of a service's ``/status``: figures of the table and its partitions, and the
diagnoses.

As JSON the report is one object with these fields; docs/reference/status.md is made of them.  ``null`` means "not
known from here"; ``unknown`` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lancewal_core.process.status.causes import Urgency
from lancewal_core.process.status.diagnose import Diagnosis, diagnose, overall
from lancewal_core.process.status.facts import PartitionFacts, Rejections, TableFacts
from lancewal_core.process.status.widenings import OpenWidening, open_widenings
from lancewal_core.table.contract import Contract


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The positions of one partition, in pipeline order, and its counts."""

    partition: int
    """Number of the partition in Kafka."""
    owner: str | None
    """The member that claimed the partition's newest generation."""
    start: int | None
    """The first offset that Kafka still has."""
    end: int | None
    """Position after the last committed record in Kafka."""
    high: int | None
    """Position after the last record in Kafka, committed or not.  It is above ``end`` while a transaction is open."""
    consumed: int | None
    """Position up to which ingest has read records from Kafka; only ingest's `/status` says it."""
    decoded: int | None
    """Position up to which records are rows or dead letters, perhaps not stored yet; only ingest's `/status` says it."""
    durable: int | None
    """Position after the newest WAL entry; null if nobody has claimed the partition."""
    flushed: int | None
    """Position up to which generations are flushed; null if none is."""
    merged: int | None
    """Position up to which the table's newest version holds the partition; null if nothing is merged."""
    read: int | None
    """Position up to which the version that a reader opens holds the partition: the newest, or that of
    ``--reader-version``."""
    lag: int | None
    """``high`` minus ``durable``: an upper bound of the records that are not durable."""
    freshness_s: float | None
    """Age in seconds of the oldest record in Kafka that is not durable, 0 if there is none; only ingest's `/status`
    says it."""
    unmerged_s: float | None
    """Seconds for which the oldest sealed generation has waited for its merge; 0 if none waits.  `null` if it is not
    known, as in ingest's `/status`."""
    merged_generation: int | None
    """Newest merged generation of the partition; 0 if none is."""
    generations: Mapping[str, int]
    """Number of the partition's generations in each state: OPEN, SEALED, FLUSHED, MERGED."""
    unmerged_rows: int
    """Changes in unmerged flushes, and rows in the WAL that no flush holds yet."""
    unmerged_bytes: int
    """Bytes of the unmerged rows."""
    rejections: Rejections
    """Outcome of the newest records that could be looked at: how many were rejected, and how many became rows.  Also
    the commonest reason, and one offset that was rejected for it."""
    diagnosis: Diagnosis
    """The first step that is stalled, why, and what to do."""


@dataclass(frozen=True, slots=True)
class MergeDone:
    """A merge that this flusher made."""

    at_ms: int
    """Time at which the merge was committed, in milliseconds since 1970."""
    version: int
    """The table version that the merge made."""
    partitions: int
    """Number of partitions whose generations were merged."""
    generations: int
    """Number of generations that were merged."""
    rows: int
    """Rows that the merge added: adopted and written."""


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """A subscription, and how far behind its consumer is."""

    name: str
    """Name of the subscription."""
    version: int
    """Table version of the subscription's receipt."""
    committed_ms: int
    """Time of the consumer's last commit, in milliseconds since 1970, by the consumer's clock."""
    lag_s: float | None
    """Seconds since the first merge after the subscription's receipt; 0 if there was none.  Null if something that
    the subscription needs is gone."""
    holds: bool
    """Whether the subscription still keeps log entries and table versions.  If so, its lag is below the table's
    ``subscription_hold_s_max``."""


@dataclass(frozen=True, slots=True)
class CutStatus:
    """A kept cut that has a snapshot of the table."""

    name: str
    """Name of the cut."""
    snapshot: str
    """Name of the cut's snapshot of this table."""
    nbytes: int | None
    """Bytes of data files that the snapshot has and the newest version has not.  Several snapshots may have the same
    files.  Null if the files cannot be read."""
    until_ms: int | None
    """Time from which on garbage collection drops the snapshot, in milliseconds since 1970; null: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """Status of a table.  A field is None if the source of the report does not know it."""

    seen_by: str
    """Source of the report: ``status`` (the command), ``ingest`` or ``flusher``."""
    at_ms: int
    """Time of the report, in milliseconds since 1970."""
    uri: str
    """The table's address."""
    name: str | None = None
    """The table's name in a catalog; null if the contract has none."""
    table_uuid: str
    """Id of the table, the same wherever the table lies."""
    table_version: int | None = None
    """Newest version of the Lance table."""
    table_rows: int | None = None
    """Rows in the newest version of the Lance table."""
    table_fragments: int | None = None
    """Fragments in the newest version of the Lance table."""
    contract_version: int
    """Version of the table's contract: the newest, or the one by which the service works."""
    topic: str
    """The table's topic."""
    topic_id: str
    """Kafka's id of the topic.  A topic that is made again under the same name has another id."""
    topic_partitions: int
    """Number of partitions of the topic, as the contract says."""
    primary_key: tuple[str, ...]
    """Columns of the primary key."""
    region_key: tuple[str, ...]
    """Columns that producers key by; empty if they key by other bytes."""
    group: str
    """Consumer group of ingest."""
    group_members: int | None = None
    """Number of members of the group; null if Kafka does not say."""
    paused: Mapping[str, int | str]
    """Paused services, and until when: milliseconds since 1970, or ``resumed`` if a person must resume the service."""
    last_merge_ms: int | None = None
    """Time of the newest merge, in milliseconds since 1970."""
    diagnosis: Diagnosis
    """The most urgent diagnosis of ``partitions``, or one that concerns the whole table."""
    partitions: tuple[PartitionStatus, ...]
    """All partitions of the contract, or those that were named; in a service's report, those that the service knows."""
    problems: tuple[str, ...]
    """Every fault that needs a person; the exit code is 1 if there is one."""
    unknown: tuple[str, ...] = ()
    """Facts that cannot be known from where the report was made, and who knows them."""
    not_looked_at: tuple[str, ...] = ()
    """Facts that strong reads need and this report has not checked, such as the rows of unmerged segments."""
    foreign_columns: tuple[str, ...] = ()
    """Nullable columns that other programs have added to the table; `lancewal table alter --adopt-column` adopts them.
    Columns that stop merges are among ``problems``."""
    keys_in_conflict: int = 0
    """Primary keys that came through two partitions, and wait for a decision."""
    older_contract_rows: int | None = None
    """Unmerged rows, and rows of keys in conflict, that are stored with older columns than the contract's.  They
    get the present columns when they are merged.  The flusher counts no rows that are only in the WAL.  Null in
    ingest's `/status`."""
    widenings: tuple[OpenWidening, ...] = ()
    """Fields that get a wider type once a flusher has rewritten their values."""
    subscriptions: tuple[SubscriptionStatus, ...] = ()
    """Subscriptions that can be read, by name.  Unreadable ones are among ``problems``.  Only the command lists them.
    """
    cuts: tuple[CutStatus, ...] = ()
    """Kept cuts that have a snapshot of the table, by name, also cuts that no longer exist and left a snapshot over.
    Only the command lists them."""
    recent_merges: tuple[MergeDone, ...] = field(default=())
    """The newest merges of this flusher, newest first."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Facts and counts of a partition."""

    facts: PartitionFacts
    merged_generation: int | None = None
    generations: Mapping[str, int] = field(default_factory=dict)
    unmerged_rows: int = 0
    unmerged_bytes: int = 0
    freshness_s: float | None = None


def status_of(
    seen_by: str, uri: str, group: str, contract: Contract, table: TableFacts, figures: Iterable[Figures]
) -> TableStatus:
    """Return the status that follows from the contract and these facts.  The caller fills in the other fields.

    ``group``: the consumer group of ingest.
    """
    partitions = partitions_of(table, figures)
    return TableStatus(
        seen_by=seen_by,
        at_ms=table.now_ms,
        uri=uri,
        name=contract.name,
        table_uuid=contract.table_uuid,
        table_version=table.version,
        table_rows=table.table_rows,
        contract_version=contract.version,
        topic=contract.topic,
        topic_id=contract.topic_id,
        topic_partitions=contract.partitions,
        primary_key=contract.primary_key,
        region_key=contract.region_key,
        group=group,
        group_members=table.members,
        paused=table.paused,
        last_merge_ms=table.merged_ms,
        diagnosis=table_diagnosis(table, partitions),
        partitions=partitions,
        problems=tuple(problems_of(table, partitions)),
        keys_in_conflict=table.keys_in_conflict,
        widenings=open_widenings(contract),
    )


def partitions_of(table: TableFacts, figures: Iterable[Figures]) -> tuple[PartitionStatus, ...]:
    """Return the status of each partition, with its diagnosis."""
    return tuple(_partition(table, found) for found in figures)


def problems_of(table: TableFacts, partitions: Sequence[PartitionStatus]) -> list[str]:
    """Return a text for each partition that needs a person.  If several partitions need the same advice, only the first
    one's text has it.
    """
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
    """Return the diagnosis of the table.

    ``all_of_them``: ``partitions`` has all partitions of the table, as far as they are known.
    """
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
