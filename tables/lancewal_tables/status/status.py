"""Make the status of a table: read each region's state, the logs' tails, the newest watermarks, control and Kafka's ends.

Nothing is written.  The brokers may be silent, a region state may be unreadable, or the table may have been restored.
A figure that this prevents is left out and becomes a problem in the result; the other figures are there.

 * *durable*: read from the region's state.  If a generation is OPEN, its log is read up to the tail
   (``unmerged_counts``).
 * *merged*: W(newest version).  Generations above it are *unmerged*, whatever the region's state says.
 * *group*: the client ids of members say which table each works for (``group_member``).
 * *diagnosis*: the first step at which records stop (``lancewal_core.process.status``), as far as stored state and
   brokers show it.
 * *partitions*: if only some are asked for, the result has their figures, diagnoses and problems, and everything about the
   whole table.  Everything that strong reads need concerns the whole table, since they read every partition.
 * *problems* include those that would end a strong read with an error, as far as ``readable`` checks.
   ``not_looked_at`` names what it does not check.
 * *older_contract_rows*: counted by the contract versions that flushes and entries name, and by the columns of the
   object with keys in conflict.
 * *unmerged* rows and bytes: from manifests of flushes, and from the WAL for generations without a flush.  In the WAL a
   key may have several rows.

Rounds of requests, for any number of regions, one after the other:
 - contract and newest version;
 - W, control and the pages of region states;
 - manifests, each once, and the logs;
 - trailers with rejected records, for partitions without unmerged entries;
 - objects that a strong read would ask for (``readable``).

If there are keys in conflict, they take one more round.  Two more tell whether a partition whose next record looks misrouted
has had a row.  One more takes the watermarks of a reader's version.

Rounds of requests to the store (docs/reference/requests.md), as counted: 8 ("`lancewal status`").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TypeVar

from lancewal_core.errors import ActionNeeded, InvalidInput, LancewalError, or_error, or_raised
from lancewal_core.keys.conflicts import Conflicts, read_conflicts
from lancewal_core.names.ids import LogId, Region, TableVersion
from lancewal_core.open import Address
from lancewal_core.process.clock import Clock, SystemClock
from lancewal_core.process.status.facts import PartitionFacts, TableFacts
from lancewal_core.process.status.report import Figures, TableStatus, status_of, table_diagnosis
from lancewal_core.process.tasks import Tasks, ThreadTasks, together
from lancewal_core.region.durable_position import rejected_without_row
from lancewal_core.region.flushes.manifest import read_flush
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.settings.load import Settings
from lancewal_core.table.checks import check_columns, check_identity, check_place, check_settings
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.columns.versions import foreign_columns
from lancewal_core.table.contract import MISROUTED, Contract, read_contract
from lancewal_core.table.control import RUNNING, Control, Service, Until, read_control
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.watermarks import InForce
from lancewal_core.wal.entry import FIRST_RECORDS
from lancewal_core.wal.segment import Trailer
from lancewal_tables.status.kept_cuts import kept_cuts
from lancewal_tables.status.of_kafka import NO_BROKERS, KafkaLook, MisroutedRecord, look_at_kafka, misrouted
from lancewal_tables.status.partition_figures import SharedFacts, records_wait, standing, stored_facts
from lancewal_tables.status.readable import Readability, look
from lancewal_tables.status.rejections import REGIONS_MAX, add_newest, newest_ended, read_stretch
from lancewal_tables.status.subscribed import subscriptions_of
from lancewal_tables.status.unmerged_counts import UnmergedCounts, count_entries, walk_held

T = TypeVar("T")
K = TypeVar("K")
_IO_THREADS = 16
"""Number of requests under way at the same time.  Each request for a segment may hold one segment in memory."""
NOT_STORED_ANYWHERE = (
    "what ingest has consumed and decoded and not stored, and why a partition has stopped: its log, /readyz and /status",
    "why rounds of the flusher fail: its log, /readyz and /status",
    "rows with vectors that an index cannot hold: see the flusher's log and /status",
)
WORK = "whether a flusher works on a widening: its log and /status"
READERS = "which version readers have open: name it with --reader-version"


def table_status(
    settings: Settings,
    uri: str,
    kafka_timeout_s: float = 5.0,
    clock: Clock | None = None,
    reader_version: int | None = None,
    named: Callable[[Contract], Collection[int]] = lambda contract: range(contract.partitions),
) -> TableStatus:
    """Return the status of the table at ``uri``.  Raises ``NotALancewalTable`` or ``TableMissing`` if it is not one.

    ``reader_version``: the table version that a reader was seen to have open; by default the newest.  Raises
    ``InvalidInput`` if there is no such version yet: nobody has it open, and nothing is to be repaired.  ``named``
    returns the partitions to show.  Its errors are raised before anything else is asked.
    """
    clock = clock or SystemClock()
    address = Address.of(settings, uri)
    store, table = address.store(), address.table()
    problems: list[str] = []
    with closing(ThreadTasks(workers=1, io_threads=_IO_THREADS)) as tasks:
        # Checked below: what is wrong is a problem among others.
        contract, pinned = together(tasks, lambda: read_contract(store, uri, tasks), table.newest)
        chosen = frozenset(named(contract))
        if reader_version is not None and reader_version > pinned.version:
            raise InvalidInput(f"there is no table version {reader_version} yet, the newest is {pinned.version}")
        now_ms = clock.now_ms()
        asked = tasks.start(lambda: look_at_kafka(settings, contract, uri, now_ms, kafka_timeout_s))
        _try(lambda: check_place(uri, contract), problems)
        _try(lambda: check_fit(store, pinned, contract), problems)
        if uri == settings.table.uri:  # of another table they say nothing
            _try(lambda: check_settings(settings, contract, store), problems)
        opened = OpenedTable.over(store, table, contract, tasks, clock)
        (in_force, control, indexes), ((subscriptions, faults), cuts) = together(
            tasks,
            lambda: _in_force_control_indexes(opened, pinned, problems),
            lambda: together(
                tasks,
                lambda: _try(lambda: subscriptions_of(opened, now_ms), problems) or ((), []),
                lambda: _try(lambda: kept_cuts(opened, pinned), problems) or (),
            ),
        )
        problems += faults
        conflicts = None if in_force is None else in_force.conflicts
        waiting = _try(lambda: read_conflicts(store, conflicts, contract), problems)
        read = in_force
        if reader_version is not None:
            read = _try(lambda: opened.watermarks.at(TableVersion(reader_version)), problems)
        counted, segments = _counts(opened, in_force, indexes, problems)
        shown = [counts for counts in counted if counts.region.partition in chosen]
        _add_newest_rejections(opened, shown, problems)
        looked = (
            look(opened, pinned, in_force, counted, segments)
            if in_force is not None
            # No strong read can begin, and the reason is among the problems already.
            else Readability(not_looked_at=["what strong reads need besides"])
        )
        problems += looked.problems
        kafka = asked.result()
        failed = [] if kafka.failure is None else [f"{kafka.failure.kind}: {kafka.failure.message}"]
        problems += [found for found in (*failed, *kafka.problems) if found not in problems]
        paused = {s.value: until for s in Service if (until := control.paused(s, now_ms)) is not None}
        seen = SharedFacts(opened, in_force, read, kafka.spans, settings.ingest.seal_age_s, now_ms)
        indexed = [index for index in indexes.values() if index is not None]
        facts = _table_facts(settings, seen, pinned, indexed, kafka, paused)
        facts = replace(facts, read_version=reader_version if read is not None else None)
        figures = _with_misrouted(settings, opened, [stored_facts(seen, one) for one in shown], facts, kafka)
    status = status_of("status", uri, settings.kafka.group(contract.table_uuid), contract, facts, figures)
    return replace(
        status,
        table_fragments=len(pinned.fragments()),
        foreign_columns=_foreign_columns(pinned, contract),
        subscriptions=subscriptions,
        cuts=cuts,
        older_contract_rows=_older_rows(counted, waiting),
        diagnosis=table_diagnosis(facts, status.partitions, all_of_them=len(chosen) == contract.partitions),
        problems=(*problems, *status.problems),
        unknown=(*_unknown(kafka, settings, reader_version), *([WORK] if status.widenings else [])),
        not_looked_at=tuple(looked.not_looked_at),
    )


def _foreign_columns(pinned: PinnedTable, contract: Contract) -> tuple[str, ...]:
    """Return the columns that other programs added to the version.  Empty if the version does not fit the contract,
    since the problems then say so."""
    try:
        check_identity(pinned, contract)
        check_columns(pinned, contract)
    except ActionNeeded:
        return ()
    return foreign_columns(pinned, contract)


def _older_rows(counted: Sequence[UnmergedCounts], conflicts: Conflicts | None) -> int:
    """Return how many unmerged rows are stored with older columns than the contract's.

    Rows that are set aside for a decision about keys in conflict are included.
    """
    set_aside = conflicts.waiting.num_rows if conflicts is not None and conflicts.older_columns else 0
    return set_aside + sum(counts.older_rows for counts in counted)


def _table_facts(
    settings: Settings,
    seen: SharedFacts,
    pinned: PinnedTable,
    states: Sequence[RegionState],
    kafka: KafkaLook,
    paused: dict[str, Until],
) -> TableFacts:
    merged = [r.merged_at_ms for index in states for r in index.generations if r.merged_at_ms is not None]
    flusher, contract = settings.flusher, seen.opened.contract
    return TableFacts(
        seen.now_ms,
        contract.topic,
        kafka=kafka.failure,
        members=kafka.members,
        paused=paused,
        table_rows=sum(f.live_rows for f in pinned.fragments()),
        keys_in_conflict=0 if seen.in_force is None else seen.in_force.keys_in_conflict,
        version=pinned.version,
        merged_ms=max(merged, default=None),
        merge_after_s=flusher.merge_interval_s + min(flusher.merge_defer_s, contract.freshness_target_s),
    )


def _with_misrouted(
    settings: Settings, opened: OpenedTable, figures: list[Figures], facts: TableFacts, kafka: KafkaLook
) -> list[Figures]:
    """Add to the figures of each partition in which records wait whether its next record is misrouted.  The record is
    read even if the wait is short, because a partition that has just stopped looks like one that works.  Partitions in
    ``_for_its_format`` are left out.
    """
    contract = opened.contract
    if contract.on_misrouted != "stop" or Service.INGEST.value in facts.paused or facts.members == 0:
        return figures
    stands = {f.facts.partition for f in figures if standing(f, facts.now_ms)}
    waiting = [f.facts for f in figures if records_wait(f) and (kafka.same_count or f.facts.partition in stands)]
    waiting.sort(key=lambda it: (it.partition not in stands, it.partition))
    places = {it.partition: it.durable for it in waiting if it.durable is not None}
    if not places:
        return figures
    found = misrouted(settings, contract, places)
    for partition in _for_its_format(opened, found):
        del found[partition]
    return [replace(f, facts=_judged(f.facts, found.get(f.facts.partition), kafka)) for f in figures]


def _for_its_format(opened: OpenedTable, found: Mapping[int, MisroutedRecord]) -> list[int]:
    """Return the partitions without a row that ingest stops for the format of their records, wherever these belong.

    Either the next record is not plain JSON with the table's columns (``MisroutedRecord.why`` is empty).  Or the records
    before it are all bad of one kind, and it is the hundredth (``FIRST_RECORDS``)."""
    if not found or opened.contract.on_wrong_format != "stop":
        return []
    try:
        told = rejected_without_row(opened, [opened.contract.regions[partition] for partition in found])
    except LancewalError:
        return []  # it only makes a diagnosis more exact
    without = {region.partition: one for region, one in told.items() if one is not None}
    return [
        p
        for p, one in without.items()
        if not found[p].why or (one.rejected >= FIRST_RECORDS - 1 and one.kind not in ("", MISROUTED))
    ]


def _judged(it: PartitionFacts, found: MisroutedRecord | None, kafka: KafkaLook) -> PartitionFacts:
    """Return the facts with the misrouted record, if there is one.  If the topic's number of partitions is not the
    contract's, ingest drains and decides by the topic's number.  The reason is then left out."""
    if found is None:
        return it
    return replace(it, misrouted_to=found.belongs, misrouted_why=found.why if kafka.same_count else "")


def _unknown(kafka: KafkaLook, settings: Settings, reader_version: int | None) -> tuple[str, ...]:
    unknown = [] if settings.kafka.bootstrap_servers else [NO_BROKERS]
    if kafka.spans and kafka.members is None:
        unknown.append(f"whether ingest runs: {kafka.group_unknown}")
    return (*unknown, *NOT_STORED_ANYWHERE, *([] if reader_version is not None else [READERS]))


def _add_newest_rejections(opened: OpenedTable, counted: Sequence[UnmergedCounts], problems: list[str]) -> None:
    """Add the newest rejections of regions without unmerged entries to their counts."""
    quiet = [counts for counts in counted if not counts.rejections.seen and counts.index is not None][:REGIONS_MAX]
    ended = [(counts, found) for counts in quiet if (found := newest_ended(counts.index)) is not None]
    read = _each(opened.tasks, partial(read_stretch, opened), dict.fromkeys(stretch for _, (_, stretch) in ended))
    for counts, (newest, stretch) in ended:
        segments = read[stretch]
        if isinstance(segments, LancewalError):
            _note(segments, problems)
        else:
            add_newest(counts.region, newest, segments, counts.rejections)


def _in_force_control_indexes(
    opened: OpenedTable, pinned: PinnedTable, problems: list[str]
) -> tuple[InForce | None, Control, dict[Region, RegionState | None]]:
    """Return the pinned version's watermarks, the control object and the region states.

    All three are read at the same time, after the version was pinned."""
    of_version, of_control, of_pages = list[str](), list[str](), list[str]()
    in_force, (control, indexes) = together(
        opened.tasks,
        lambda: _try(lambda: opened.watermarks.at(pinned.version), of_version),
        lambda: together(
            opened.tasks,
            lambda: _try(lambda: read_control(opened.store, opened.contract.making), of_control),
            lambda: _indexes(opened, of_pages),
        ),
    )
    problems += [*of_version, *of_control, *of_pages]
    return in_force, control or RUNNING, indexes


def _indexes(opened: OpenedTable, problems: list[str]) -> dict[Region, RegionState | None]:
    """Return the states of the regions that could be read; the state is None if nobody has claimed the region."""
    found: dict[Region, RegionState | None] = {}
    for region, answer in opened.states.read_each(opened.contract.regions).items():
        if isinstance(answer, LancewalError):
            _note(answer, problems)
        else:
            found[region] = answer
    return found


def _counts(
    opened: OpenedTable,
    in_force: InForce | None,
    states: Mapping[Region, RegionState | None],
    problems: list[str],
) -> tuple[list[UnmergedCounts], list[Trailer]]:
    """Return the counts of all regions, and the segments with entries that no flush has.

    A damaged object becomes one problem, and is not counted."""
    counted = [UnmergedCounts(region, states.get(region), region in states) for region in opened.contract.regions]
    flushed = list[tuple[UnmergedCounts, GenerationRecord]]()
    by_log: dict[LogId, list[tuple[UnmergedCounts, GenerationRecord]]] = defaultdict(list)
    for counts in counted:
        for record in counts.index.generations if counts.index is not None else ():
            counts.durable = record.next  # of an OPEN one its log tells
            if in_force is not None and record.generation <= in_force.generation(counts.region):
                continue
            if record.state is GenerationState.MERGED:
                continue  # the state is ahead of what we pinned
            if record.flush is not None:
                flushed.append((counts, record))
                continue
            counts.in_log.append(record)
            by_log[record.log].append((counts, record))
    flushes, walks = together(
        opened.tasks,
        lambda: _each(opened.tasks, lambda key: read_flush(opened.store, key), {r.flush or "" for _, r in flushed}),
        lambda: _each(opened.tasks, lambda log: walk_held(opened, log, by_log[log]), by_log),
    )
    for counts, record in flushed:
        flush = flushes[record.flush or ""]
        found = _try(lambda: or_raised(flush).generation_of(counts.region, record.generation), problems)  # noqa: B023 # called now
        if found is not None:
            counts.rows += found.changes
            counts.older_rows += found.changes * (found.contract_version < opened.contract.columns_version)
            counts.nbytes += found.nbytes
            counts.snapshots.append((record, found))
        else:
            counts.unread.append(record)
    segments: list[Trailer] = []
    for log, held in by_log.items():
        walked = walks[log]
        _try(lambda: count_entries(opened, or_raised(walked), held, segments), problems)  # noqa: B023 # called now
    return counted, segments


def _each(tasks: Tasks, call: Callable[[K], T], items: Collection[K]) -> dict[K, T | LancewalError]:
    """Return the result or the error of ``call`` for each item.  All calls are made at the same time."""
    wanted = list(items)
    answers = tasks.map(lambda item: or_error(partial(call, item)), wanted) if wanted else ()
    return dict(zip(wanted, answers, strict=True))


def _try(call: Callable[[], T], problems: list[str]) -> T | None:
    found = or_error(call)
    if not isinstance(found, LancewalError):
        return found
    _note(found, problems)
    return None


def _note(error: LancewalError, problems: list[str]) -> None:
    """Add an error to the problems, unless they have it already: several regions may need the same damaged object."""
    text = f"{error.kind}: {error}"
    if text not in problems:
        problems.append(text)
