"""Taking the status of a table: reads the index of every region, the logs' tails, W(newest), control and Kafka's ends.

Only reads.  What stands in the way of one figure (the brokers are silent, an index cannot be read, the table was
restored) leaves that figure out and becomes a problem in the result; the other figures are there.

 * *durable*: from the index, and for an OPEN generation from its log, walked to the tail (``unmerged_counts``).
 * *merged*: W(newest version).  Generations above it are *unmerged*, whatever state their index shows.
 * *group*: its members tell by their client ids which table they work for (``group_member``).
 * *stands*: ``stopped_partitions`` says what can be told of partitions that go no further.
 * *problems* are also what a strong read would stop at, as far as ``readable`` looks; ``not_looked_at`` is the rest.
 * *unmerged* rows and bytes: from the snapshot's manifest, and from the WAL where there is no snapshot yet; in the WAL a
   key may have several rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lancewal_core import paths
from lancewal_core.errors import LancewalError
from lancewal_core.ids import LogId, Region
from lancewal_core.keys.conflicts import read_conflicts
from lancewal_core.open import Address
from lancewal_core.process.clock import Clock, SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.index import GenerationRecord, RegionIndex, State
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.snapshot import read_snapshot
from lancewal_core.settings.load import Settings
from lancewal_core.store.place import place_of, same_place
from lancewal_core.table.checks import check_place, check_settings, check_table
from lancewal_core.table.contract import Contract, read_contract
from lancewal_core.table.control import RUNNING, Service, Until, read_control
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.watermarks import InForce
from lancewal_core.wal.segment import Trailer
from lancewal_flusher.status.readable import Look, SegmentSize, Unmerged, look
from lancewal_flusher.status.stopped_partitions import (
    STANDS_S,
    KafkaSpan,
    Signs,
    Stopped,
    gone_from_kafka,
    stands,
    waits,
)
from lancewal_flusher.status.unmerged_counts import UnmergedCounts, count_entries

if TYPE_CHECKING:
    from lancewal_kafka.group_member import MemberTable
    from lancewal_kafka.topic import GroupMember, TopicInspector

T = TypeVar("T")
_IO_THREADS = 8
"""Segments fetched at the same time."""


@dataclass(frozen=True, slots=True)
class RegionStatus:
    """Positions are Kafka's; None where a figure could not be had, or where there is nothing to say yet."""

    partition: int
    owner: str | None
    """Who claimed the region's newest generation."""
    end: int | None
    """Position behind the last committed record in Kafka."""
    high: int | None
    """The same for all records: above ``end`` while a transaction is open."""
    durable: int | None
    """Position behind the newest WAL entry; None if nobody has claimed the region."""
    lag: int | None
    """``high`` minus ``durable``: an upper bound of the records that are not durable."""
    merged: int | None
    """Position up to which the table's newest version holds the region."""
    merged_generation: int | None
    generations: Mapping[str, int]
    """Number of generations in the index by state."""
    unmerged_rows: int
    """Changes in unmerged snapshots, and rows in the WAL that no snapshot holds yet."""
    unmerged_bytes: int
    stands: str | None = None
    """Why it goes no further, as far as that can be told from outside: the ``kind`` of an error, or ``stands``."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """What ``lancewal status --output json`` shows."""

    uri: str
    table_uuid: str
    table_version: int
    table_rows: int
    table_fragments: int
    contract_version: int
    topic: str
    topic_id: str
    primary_key: tuple[str, ...]
    region_key: tuple[str, ...]
    group: str
    """Consumer group of ingest."""
    group_members: int | None
    """How many it has; None where Kafka does not say."""
    paused: Mapping[str, Until]
    """Paused services, and until when: milliseconds since 1970, or ``resumed``."""
    regions: tuple[RegionStatus, ...]
    problems: tuple[str, ...]
    """Why figures are missing, what contradicts the contract, and what strong reads stop at."""
    not_looked_at: tuple[str, ...] = ()
    """What strong reads need besides."""
    keys_in_conflict: int = 0
    """Primary keys that came through two partitions, and wait for a decision."""


def table_status(settings: Settings, uri: str, kafka_timeout_s: float = 5.0, clock: Clock | None = None) -> TableStatus:
    """The status of the table at ``uri``.  ``NotALancewalTable`` or ``TableMissing`` if it is none."""
    clock = clock or SystemClock()
    address = Address.of(settings, uri)
    store = address.store()
    contract = read_contract(store, uri)  # checked below: what is wrong is a problem among others
    table = address.table()
    pinned = table.newest()
    problems: list[str] = []
    _try(lambda: check_place(uri, contract), problems)
    _try(lambda: check_table(pinned, contract), problems)
    if uri == settings.table.uri:  # of another table they say nothing
        _try(lambda: check_settings(settings, contract), problems)
    tasks = ThreadTasks(workers=1, io_threads=_IO_THREADS)
    opened = OpenedTable.over(store, table, contract, tasks, clock)
    in_force = _try(lambda: opened.watermarks.at(pinned.version), problems)
    conflicts = None if in_force is None else in_force.conflicts
    _try(lambda: read_conflicts(store, conflicts, contract.rows), problems)
    control = _try(lambda: read_control(store), problems) or RUNNING
    now_ms = clock.now_ms()
    with closing(tasks):
        counted, segments = _counts(opened, in_force, problems)
        looked = _look(opened, pinned, in_force, counted, segments)
        problems += looked.problems
        group = settings.kafka.group(contract.table_uuid)
        spans: Mapping[int, KafkaSpan] = {}
        members: Sequence[GroupMember] | None = None
        inspector = _inspector(settings, kafka_timeout_s, problems)
        if inspector is not None:
            spans = _try(lambda: _spans(inspector, contract, now_ms, problems), problems) or {}
            # Not every user may see the group, and that is no problem of the table.
            members = _try(lambda: inspector.members(contract.topic, group), []) if spans else None
        problems += foreign_members(group, members or (), contract, uri)
        paused = {s.value: until for s in Service if (until := control.paused(s, now_ms)) is not None}
        stopped = _stopped(opened, counted, spans, Service.INGEST.value in paused, now_ms, problems)
    problems += [found.text for found in stopped.values()]
    return TableStatus(
        uri=uri,
        table_uuid=contract.table_uuid,
        table_version=pinned.version,
        table_rows=sum(f.physical_rows - f.deleted_rows for f in pinned.fragments()),
        table_fragments=len(pinned.fragments()),
        contract_version=contract.version,
        topic=contract.topic,
        topic_id=contract.topic_id,
        primary_key=contract.primary_key,
        region_key=contract.region_key,
        group=group,
        group_members=None if members is None else len(members),
        paused=paused,
        regions=tuple(
            _status(t, in_force, spans.get(t.region.partition), stopped.get(t.region.partition)) for t in counted
        ),
        problems=tuple(problems),
        not_looked_at=tuple(looked.not_looked_at),
        keys_in_conflict=0 if conflicts is None else conflicts.keys,
    )


def _look(
    opened: OpenedTable,
    pinned: PinnedTable,
    in_force: InForce | None,
    counted: Sequence[UnmergedCounts],
    segments: Sequence[Trailer],
) -> Look:
    if in_force is None:  # no strong read can begin, and why is a problem already
        return Look(not_looked_at=["what strong reads need besides"])
    unmerged = [Unmerged(t.region, t.index, t.snapshots) for t in counted if t.index_read]
    sizes = [
        SegmentSize(
            paths.wal_segment(s.log, s.sequence), sum(batch.section.length for batch in s.batches), s.written_at_ms
        )
        for s in segments
    ]
    return look(opened, pinned, in_force, unmerged, sizes)


def _status(
    counts: UnmergedCounts, in_force: InForce | None, span: KafkaSpan | None, stopped: Stopped | None
) -> RegionStatus:
    end, high = (None, None) if span is None else (span.end, span.high)
    newest = None if counts.index is None else counts.index.newest
    states = Counter(record.state.name.lower() for record in (counts.index.generations if counts.index else ()))
    return RegionStatus(
        partition=counts.region.partition,
        owner=None if newest is None else newest.owner,
        end=end,
        high=high,
        durable=counts.durable,
        lag=None if high is None or counts.durable is None else max(0, high - counts.durable),
        merged=None if in_force is None else in_force.position(counts.region),
        merged_generation=None if in_force is None else in_force.generation(counts.region),
        generations={s.name.lower(): states[s.name.lower()] for s in State if states[s.name.lower()]},
        unmerged_rows=counts.rows,
        unmerged_bytes=counts.nbytes,
        stands=None if stopped is None else stopped.kind,
    )


def _indexes(opened: OpenedTable, problems: list[str]) -> dict[Region, RegionIndex | None]:
    """Of the regions whose index could be read: None for one that nobody has claimed."""
    regions = opened.contract.regions
    try:
        read = opened.read_indexes()
        return {region: read.get(region) for region in regions}
    except LancewalError:
        pass  # of some region: those of the others are found one after another
    found: dict[Region, RegionIndex | None] = {}
    for region in regions:
        read_one = _try(lambda: opened.indexes.read([region]), problems)  # noqa: B023 # called now
        if read_one is not None:
            found[region] = read_one.get(region)
    return found


def _counts(
    opened: OpenedTable, in_force: InForce | None, problems: list[str]
) -> tuple[list[UnmergedCounts], list[Trailer]]:
    store = opened.store
    indexes = _indexes(opened, problems)

    def count(region: Region) -> UnmergedCounts:
        result = UnmergedCounts(region, indexes.get(region), region in indexes)
        for record in result.index.generations if result.index is not None else ():
            result.durable = record.next  # of an OPEN one its log tells
            if in_force is not None and record.generation <= in_force.generation(region):
                continue
            if record.state is State.MERGED:
                continue  # the index is ahead of what we pinned
            if record.snapshot is None:
                result.in_log.append(record)
                continue
            key = record.snapshot
            snapshot = _try(lambda: read_snapshot(store, key), problems)  # noqa: B023 # called before the next turn
            if snapshot is not None:
                result.rows += snapshot.changes
                result.nbytes += snapshot.rows_bytes
                result.nbytes += sum(side.size for side in (snapshot.deletes, snapshot.patches) if side is not None)
                result.snapshots.append((record, snapshot))
        return result

    counted = opened.tasks.map(count, opened.contract.regions)
    by_log: dict[LogId, list[tuple[UnmergedCounts, GenerationRecord]]] = defaultdict(list)
    for found in counted:
        for record in found.in_log:
            by_log[record.log].append((found, record))
    segments: list[Trailer] = []
    for log, held in by_log.items():
        segments += _try(lambda: count_entries(opened, log, held), problems) or []  # noqa: B023 # called now
    return counted, segments


def _stopped(
    opened: OpenedTable,
    counted: Sequence[UnmergedCounts],
    spans: Mapping[int, KafkaSpan],
    paused: bool,
    now_ms: int,
    problems: list[str],
) -> dict[int, Stopped]:
    """What goes no further, by partition.  Who waits for an operator, or was never claimed, is shown as that."""

    def look(counts: UnmergedCounts) -> Stopped | None:
        region, durable, span = counts.region, counts.durable, spans.get(counts.region.partition)
        if durable is None or span is None:
            return None
        gone = gone_from_kafka(region, durable, span)
        if gone is not None or paused or not waits(durable, span):
            return gone
        infos = _try(lambda: opened.store.list(paths.index_prefix(region), limit=1), problems)
        if infos is None:
            return None  # when it changed last is not known
        # The newest version is the first; a local folder gives all.
        changed_at_ms = max([counts.entry_at_ms, *(info.modified_ms for info in infos)])
        return stands(region, durable, span, Signs(changed_at_ms, counts.owner_wrote_at_ms), now_ms)

    found = zip(counted, opened.tasks.map(look, counted), strict=True)
    return {counts.region.partition: stopped for counts, stopped in found if stopped is not None}


def _inspector(settings: Settings, timeout_s: float, problems: list[str]) -> TopicInspector | None:
    """What asks Kafka; None where no brokers are named."""
    if not settings.kafka.bootstrap_servers:
        problems.append("kafka.bootstrap_servers is not set: no lag")
        return None
    from lancewal_kafka.topic import TopicInspector  # the status of a table can do without Kafka's client

    return _try(lambda: TopicInspector(settings.kafka.client(), timeout_s), problems)


def _spans(inspector: TopicInspector, contract: Contract, now_ms: int, problems: list[str]) -> Mapping[int, KafkaSpan]:
    """What Kafka has by partition; empty where it has another topic."""
    topic = inspector.describe(contract.topic)
    if topic.topic_id != contract.topic_id:
        problems.append(
            f"topic {contract.topic} has id {topic.topic_id}, the contract says {contract.topic_id}: it was deleted "
            "and recreated"
        )
        return {}
    if topic.partitions != contract.partitions:
        problems.append(
            f"topic {contract.topic} has {topic.partitions} partitions, the contract says {contract.partitions}. Once "
            "producers are stopped, and ingest, started again, and flusher have taken what the old ones hold: `lancewal "
            f"table alter --partitions {topic.partitions}`"
        )
    partitions = range(min(topic.partitions, contract.partitions))
    lows = inspector.begins(contract.topic, partitions)
    recent = inspector.since(contract.topic, partitions, now_ms - int(STANDS_S * 1000), committed=False)
    ends = inspector.ends(contract.topic, partitions)
    highs = inspector.ends(contract.topic, partitions, committed=False)
    # Records of an open transaction wait too, though nobody can read them yet.
    return {
        p: KafkaSpan(lows[p], ends[p], highs[p], highs[p] if (first := recent[p]) is None else min(first, highs[p]))
        for p in partitions
    }


def foreign_members(group: str, members: Sequence[GroupMember], contract: Contract, uri: str) -> list[str]:
    """A problem for each other table that members of the group work for: both get a part of the partitions only.

    Those at the contract's place are its own, also where it is a copy of the folder, such as a backup, that is looked at.
    """
    from lancewal_kafka.group_member import parse_member_id

    here = contract.place or place_of(uri)
    found: dict[MemberTable, list[str]] = defaultdict(list)
    for member in members:
        of = parse_member_id(member.client_id)
        if of is not None and not (of.table_uuid == contract.table_uuid and same_place(of.place, here)):
            found[of].append(member.host)
    return [
        f"consumer group {group}: {len(hosts)} members ({', '.join(sorted(set(hosts)))}) work for the table "
        f"{of.table_uuid} at {of.place}: each of the two tables gets the records of a part of the partitions only. Stop them; "
        "if that table is a copy of this one, `lancewal table attach` or `table moved` makes it one of its own; if both have "
        "the same kafka.group_id, give them two, or none"
        for of, hosts in found.items()
    ]


def _try(call: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return call()
    except LancewalError as error:
        problems.append(f"{error.kind}: {error}")
        return None
