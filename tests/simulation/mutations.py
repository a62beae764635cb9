"""Mutations: each removes one safeguard of the protocol by patching named functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lancewal_core.region.durable_position
import lancewal_core.region.end_region
import lancewal_core.region.generation_entries
import lancewal_core.region.transitions
import lancewal_core.rows.carry
import lancewal_core.rows.projection
import lancewal_core.table.checks
import lancewal_core.table.columns.adopt
import lancewal_core.table.columns.restored
import lancewal_core.table.columns.steps
import lancewal_core.table.columns.versions
import lancewal_core.table.subscriptions.needs
import lancewal_core.wal.listed
import lancewal_core.wal.log_end
import lancewal_core.wal.writer
import lancewal_core.wal.writer_schemas
import lancewal_flusher.commit.send
import lancewal_flusher.commit.widened
import lancewal_flusher.cuts.moving
import lancewal_flusher.cuts.positions
import lancewal_flusher.garbage.collect
import lancewal_flusher.garbage.find
import lancewal_flusher.garbage.flushes
import lancewal_flusher.garbage.subscribed
import lancewal_flusher.garbage.table_versions
import lancewal_flusher.merge.finish
import lancewal_flusher.merge.inputs
import lancewal_flusher.merge.look
import lancewal_flusher.merge.merge
import lancewal_flusher.merge.plan
import lancewal_flusher.merge.region_input
import lancewal_flusher.merge.set_aside
import lancewal_flusher.service.round
import lancewal_flusher.upkeep.widening
import lancewal_ingest.append.new_columns
import lancewal_ingest.decode.json.defaults
import lancewal_ingest.kafka.consumer_group
import lancewal_ingest.regions.flush_queue
import lancewal_ingest.regions.open
import lancewal_ingest.regions.partitions
import lancewal_ingest.regions.seal
import lancewal_ingest.regions.sealing
import lancewal_ingest.registry.comparison
import lancewal_ingest.registry.lookups
import lancewal_ingest.service.worker
import lancewal_reader.changes.all
import lancewal_reader.changes.feed
import lancewal_reader.changes.net
import lancewal_reader.changes.records
import lancewal_reader.plan.at_least
import lancewal_reader.plan.at_positions
import lancewal_reader.plan.at_receipt
import lancewal_reader.plan.at_record_time
import lancewal_reader.plan.at_timestamp
import lancewal_reader.plan.lineage
import lancewal_reader.plan.strong
import lancewal_reader.reading.reads
import lancewal_reader.reading.result_columns
import lancewal_tables.cuts.drop
import lancewal_tables.cuts.left_over
import lancewal_tables.cuts.make
import lancewal_tables.define.alter
import lancewal_tables.define.drop
import tests.simulation.world
from lancewal_core.catalog.cut import Cut, CutNote, CutTable, snapshot_name
from lancewal_core.errors import LancewalError, OutsideHistoryWindow, OwnershipLost
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region, Sequence, TableVersion
from lancewal_core.process.clock import SystemClock
from lancewal_core.region.flush import Flushing, flush_generations
from lancewal_core.region.flush_files import Flushable
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.history import History, SoundHistories, generations_behind, read_sound_histories
from lancewal_core.region.state import GenerationRecord, GenerationState
from lancewal_core.region.transitions import Claimant, Ended, claim, trim
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.store.object_store import Done, ObjectInfo, Unknown, put_once
from lancewal_core.table.checks import column_tree
from lancewal_core.table.contract import MISROUTED, newest_contract
from lancewal_core.table.subscriptions.holding import HOLDS_NOTHING, Holding, holding_of
from lancewal_core.table.subscriptions.needs import Age
from lancewal_core.table.subscriptions.subscriptions import KeptSubscriptions, decoded_names
from lancewal_core.table.watermarks import NOTHING_MERGED, PROPERTY_EXPIRY, InForce, Watermarks
from lancewal_core.wal.bundle import Copy
from lancewal_core.wal.entry import NoRowYet
from lancewal_core.wal.log_end import end_log
from lancewal_core.wal.segment import Fence
from lancewal_core.wal.walk import Walk, walk_sound
from lancewal_core.wal.writer import LogWriter
from lancewal_core.wal.writer_schemas import WriterSchemas, stored_schema
from lancewal_flusher.commit.facts import MergeFacts
from lancewal_flusher.garbage.find import _free_segments, boundary, claimed_histories
from lancewal_flusher.garbage.subscribed import KnownSubscriptions, read_holding
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.region_input import AdoptedFiles, RegionInput, adopted_files
from lancewal_flusher.service.round import mark
from lancewal_flusher.upkeep.adopted_keys import AdoptedKeys
from lancewal_ingest.append.new_key_form import with_first_form
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.decode.decoder import Decoder
from lancewal_ingest.decode.naming import Naming
from lancewal_ingest.decode.outcomes import Decoded, Rejected
from lancewal_ingest.decode.record_keys import ComparedKeys
from lancewal_ingest.envelopes.unavailable import UnavailableValues
from lancewal_ingest.kafka.source import Polled
from lancewal_ingest.regions.flush_queue import FlushQueue
from lancewal_ingest.regions.intake import Intake
from lancewal_ingest.regions.open import open_regions
from lancewal_ingest.regions.seal import to_seal
from lancewal_ingest.retention.tombstones import lost_tombstones
from lancewal_ingest.service.worker import IngestWorker
from lancewal_kafka.records import Records
from lancewal_reader.plan.log_entries import EntryRun, LogEntries
from lancewal_reader.plan.strong import OnBranch, plan_strong
from lancewal_reader.point.at import At
from lancewal_reader.point.read_options import read_options
from lancewal_reader.reading.reads import wanted_of
from tests.simulation.memory_kafka import MemorySource
from tests.twins.memory_table import MemoryDataset, MemoryTable

Patch = Callable[[pytest.MonkeyPatch], None]

COMMAND: Any = lancewal_core.table.columns.steps


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    def end_log(
        store: Any, tasks: Any, clock: Any, log: Any, starts: Mapping[Region, Sequence], writer: Any, **_: Any
    ) -> Any:
        walked = walk_sound(store, tasks, log, starts)
        return Walk(log, walked.segments, walked.end, walked.fence or Fence(log, walked.end, writer, clock.now_ms()))

    patch.setattr(lancewal_core.region.end_region, "end_log", end_log)


def _others_generations_tell_nothing_of_a_log(patch: pytest.MonkeyPatch) -> None:
    def end_from_the_lowest(
        store: Any, tasks: Any, clock: Any, log: Any, starts: Mapping[Region, Sequence], writer: Any, **_: Any
    ) -> Any:
        return end_log(store, tasks, clock, log, dict.fromkeys(starts, min(starts.values())), writer)

    patch.setattr(lancewal_core.region.end_region, "end_log", end_from_the_lowest)


def _declined_is_claimed_too(patch: pytest.MonkeyPatch) -> None:
    def claim_all(context: Any, writer: Any, opening: Any) -> Any:
        found = claim_each(context, writer, opening)
        lost = [region for region, answer in found.items() if isinstance(answer, OwnershipLost)]
        return found | context.states.read(lost)

    claim_each = lancewal_ingest.regions.open._claim
    patch.setattr(lancewal_ingest.regions.open, "_claim", claim_all)


def _kafka_is_asked_before_logs_are_ended(patch: pytest.MonkeyPatch) -> None:
    def ask_first(context: Any, writer: Any, regions: Any, offsets: Any) -> Any:
        known = offsets(regions)
        return open_regions(context, writer, regions, lambda _: known)

    patch.setattr(lancewal_ingest.regions.partitions, "open_regions", ask_first)


def _no_sentinel(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.commit.send, "sentinel", lambda fragments: None)
    for module in (lancewal_flusher.commit.send, lancewal_flusher.merge.finish, lancewal_flusher.merge.merge):
        patch.setattr(module, "prove", lambda *arguments: None)


def _delete_before_the_boundary_moves(patch: pytest.MonkeyPatch) -> None:
    def shorten(
        context: Any, histories: Mapping[Region, History], in_force: InForce, now: int, known: Any
    ) -> tuple[dict[Region, History], Holding]:
        changed = {}
        for region, history in histories.items():
            reached = boundary(history, in_force.generation(region), now, context.contract.history_window_s * 1000)
            trimmed = None if reached is None else trim(history.state, reached, context.new_id())
            if trimmed is not None:
                changed[region] = History(trimmed, history.pages)
        return changed, HOLDS_NOTHING

    patch.setattr(lancewal_flusher.garbage.collect, "_shorten", shorten)


def _index_changes_while_unsettled(patch: pytest.MonkeyPatch) -> None:
    start_job = IngestWorker._start_job

    def start_and_seal(worker: IngestWorker, *, now: bool = False) -> None:
        start_job(worker, now=now)
        worker._sealing.advance(worker._writer)

    patch.setattr(lancewal_ingest.regions.seal, "_check_settled", lambda writer: None)
    patch.setattr(IngestWorker, "_start_job", start_and_seal)


class _ByNow(Claimant):
    """Whose first segment is the next one whenever that is asked."""

    __slots__ = ("_writer",)

    def __init__(self, writer: LogWriter) -> None:
        super().__init__(writer.owner, writer.log, writer.next_unsent)
        object.__setattr__(self, "_writer", writer)

    def __getattribute__(self, name: str) -> Any:
        if name == "first_sequence":
            return object.__getattribute__(self, "_writer").next_unsent
        return object.__getattribute__(self, name)


def _a_seal_ends_where_the_log_ends_by_then(patch: pytest.MonkeyPatch) -> None:
    def unfixed(context: Any, writer: LogWriter, memtables: Any) -> Any:
        return [replace(fixed, claimant=_ByNow(writer)) for fixed in to_seal(context, writer, memtables)]

    patch.setattr(lancewal_ingest.regions.sealing, "to_seal", unfixed)


class _Joins(int):
    """A position that no check finds out of place."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def _join_over_a_gap(patch: pytest.MonkeyPatch) -> None:
    of_generation = LogEntries.of_generation

    def joined(self: LogEntries, region: Any, record: Any) -> Any:
        refs, _ = of_generation(self, region, record)
        joining = [replace(ref, first=Position(_Joins(ref.first)), next=Position(_Joins(ref.next))) for ref in refs]
        return EntryRun(joining, chained=True)

    patch.setattr(LogEntries, "of_generation", joined)


def _no_proof_of_a_walk_s_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.plan.strong, "_prove_ends", lambda context, held, walks: walks)


def _a_log_s_end_is_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    for module in (lancewal_core.wal.log_end, lancewal_core.region.durable_position, lancewal_reader.plan.strong):
        patch.setattr(module, "confirm_end", lambda store, walked, walk_on: walked)


def _any_entries_are_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_core.region.generation_entries, "is_chain", lambda entries, first, next_: True)


def list_late(patch: pytest.MonkeyPatch) -> None:
    """Half a mutation: WAL segments are listed after the indexes were read."""

    def free_segments(context: Any, segments: Any, needed: Any, now: int) -> set[str]:
        return _free_segments(context, context.store.list(paths.WAL), needed, now)

    patch.setattr(lancewal_flusher.garbage.find, "_free_segments", free_segments)


def delete_at_once(patch: pytest.MonkeyPatch) -> None:
    """Half a mutation: what is found free is deleted in the same round."""
    free_segments = lancewal_flusher.garbage.find._free_segments

    def free_and_delete(context: Any, segments: Any, needed: Any, now: int) -> set[str]:
        found = free_segments(context, segments, needed, now)
        context.store.delete(sorted(found))
        return set()

    patch.setattr(lancewal_flusher.garbage.find, "_free_segments", free_and_delete)


def _candidates_after_the_indexes(patch: pytest.MonkeyPatch) -> None:
    # Each half alone is harmless: what is listed late shows in the next round's indexes, and the deletion waits for it.
    list_late(patch)
    delete_at_once(patch)


def _regions_by_listing(patch: pytest.MonkeyPatch) -> None:
    def of_listing(opened: Any, regions: Any, in_force: Any, known: Any) -> Any:
        page_of = opened.contract.page_of
        listed = [region for region in regions if opened.store.list(paths.page_prefix(page_of(region)))]
        return read_sound_histories(opened, listed, in_force, known)

    patch.setattr(lancewal_flusher.garbage.find, "read_sound_histories", of_listing)


def _what_a_damaged_region_needs_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    def of_sound_ones(*arguments: Any) -> Any:
        return replace(read_sound_histories(*arguments), damaged={})

    patch.setattr(lancewal_flusher.garbage.find, "read_sound_histories", of_sound_ones)


def _keys_have_no_making(patch: pytest.MonkeyPatch) -> None:
    contract = tests.simulation.world._contract
    patch.setattr(
        tests.simulation.world, "_contract", lambda settings: contract(settings).model_copy(update={"making": None})
    )


def _first_records_stop_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Preparer, "_other_format", lambda *arguments: None)


def _deletes_count_as_rows(patch: pytest.MonkeyPatch) -> None:
    counted = NoRowYet.then
    patch.setattr(NoRowYet, "then", lambda told, entry: None if entry.row_count else counted(told, entry))


def _a_claim_counts_no_records(patch: pytest.MonkeyPatch) -> None:
    def ended_at(*arguments: Any) -> Any:
        found = end_of(*arguments)
        return replace(found, no_row=NoRowYet()) if isinstance(found, Ended) else found

    end_of = lancewal_core.region.end_region.ended_at
    for module in (lancewal_core.region.end_region, lancewal_ingest.regions.open):
        patch.setattr(module, "ended_at", ended_at)


def _a_seal_counts_no_records(patch: pytest.MonkeyPatch) -> None:
    def seal_and_forget(*arguments: Any, no_row: Any, **known: Any) -> Any:
        return seal_of(*arguments, no_row=NoRowYet(), **known)

    seal_of = lancewal_core.region.transitions.seal
    patch.setattr(lancewal_ingest.regions.seal, "seal", seal_and_forget)


def _a_claim_of_another_group_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_ingest.regions.open, "_by_newest", lambda context, opening: opening)


def _a_region_is_claimed_by_an_older_contract(patch: pytest.MonkeyPatch) -> None:
    def by_its_own(state: Any, ended: Any, version: int, *others: Any) -> Any:
        claimed = claim(state, ended, version, *others)
        return None if claimed is None else replace(claimed, contract_version=version)

    patch.setattr(lancewal_ingest.regions.open, "_by_newest", lambda context, opening: opening)
    patch.setattr(lancewal_ingest.regions.open, "claim", by_its_own)


def _groups_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_ingest.kafka.consumer_group, "check_group", lambda contract, group: None)


def _a_claim_does_not_look_for_a_drop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_ingest.regions.open, "_check_in_use", lambda context: None)


def _logs_of_a_dropped_table_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_tables.define.drop, "_end_open", lambda opened, new_id, contract: {})


def _fences_before_the_drop(patch: pytest.MonkeyPatch) -> None:
    def drop(opened: Any, new_id: Any) -> Any:
        failed = lancewal_tables.define.drop._end_open(opened, new_id, opened.contract)
        return lancewal_tables.define.drop._put_drop(opened), failed

    patch.setattr(lancewal_tables.define.drop, "drop", drop)


def _a_deletion_swaps_no_contract(patch: pytest.MonkeyPatch) -> None:
    def begin(store: Any, clock: Any, contract: Any) -> Any:
        lancewal_tables.define.drop.undrop(store, clock, contract)
        return contract.model_copy(update={"drop": contract.drop.model_copy(update={"deleting": True})})

    patch.setattr(lancewal_tables.define.drop, "begin_deletion", begin)


def _a_dropped_table_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.garbage.find, "check_present", lambda store, contract: None)


def compare_with_what_exists(patch: pytest.MonkeyPatch) -> None:
    """Half a mutation: a commit is compared only with versions that still exist, as by an open data set."""
    conflict = MemoryDataset.conflict

    def by_object(dataset: MemoryDataset, commit: Any) -> str | None:
        found = conflict(dataset, commit)
        if commit.read_version in dataset.versions:
            return found
        return conflict(dataset, replace(commit, read_version=min(dataset.versions)))

    patch.setattr(MemoryDataset, "conflict", by_object)


def _commit_by_dataset_object(patch: pytest.MonkeyPatch) -> None:
    compare_with_what_exists(patch)
    # The proof afterwards stops everything, but the table has its keys twice by then.
    for module in (lancewal_flusher.merge.finish, lancewal_flusher.merge.merge):
        patch.setattr(module, "prove", lambda *arguments: None)


def _marked_before_the_follow_up(patch: pytest.MonkeyPatch) -> None:
    def mark_and_finish(context: Any, seen: Any) -> Any:
        mark(context, context.read_states(), seen.in_force)
        return finish_newest(context, seen)

    patch.setattr(lancewal_flusher.service.round, "finish_newest", mark_and_finish)


def _indexes_before_a_merge_was_known(patch: pytest.MonkeyPatch) -> None:
    looked = lancewal_flusher.merge.look.look

    def look_once(context: Any) -> Any:
        context.watermarks._set_by = 1 << 60
        return looked(context)

    for module in (lancewal_flusher.service.round, lancewal_flusher.merge.merge):
        patch.setattr(module, "look", look_once)


def _unknown_is_stored(patch: pytest.MonkeyPatch) -> None:
    def believing(store: Any, key: str, data: bytes) -> Any:
        outcome = put_once(store, key, data)
        return Done() if isinstance(outcome, Unknown) else outcome

    patch.setattr(lancewal_core.wal.writer, "put_once", believing)


def _stale_claim(patch: pytest.MonkeyPatch) -> None:
    def adopting(index: Any, ended: Any, *others: Any) -> Any:
        newest = index.newest
        if ended is not None and newest is not None and ended.end_sequence < newest.first_sequence:
            ended = replace(ended, end_sequence=Sequence(newest.first_sequence))
        return claim(index, ended, *others)

    patch.setattr(lancewal_ingest.regions.open, "claim", adopting)


def _next_without_position(patch: pytest.MonkeyPatch) -> None:
    take = Intake._take

    def take_records_only(intake: Intake, polled: Polled) -> None:
        take(intake, Polled(polled.records, {p: Position(r.offsets[-1] + 1) for p, r in polled.records.items()}))

    patch.setattr(Intake, "_take", take_records_only)


def _too_many_keys_end_the_merge(patch: pytest.MonkeyPatch) -> None:
    def raise_it(context: Any, found: Any, waiting: int, *, decisions_help: bool) -> Any:
        raise lancewal_flusher.merge.set_aside._too_many(context, found, waiting, decisions_help)

    patch.setattr(lancewal_flusher.merge.set_aside, "_held_back", raise_it)


def _ingest_goes_on_beside_keys_in_conflict(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IngestWorker, "stop_conflicting", lambda worker, conflicting: None)


def _position_asked_too_late(patch: pytest.MonkeyPatch) -> None:
    poll = MemorySource.poll

    def poll_twice(source: MemorySource, records_max: int, timeout_s: float, gather_s: float) -> Polled:
        polled = poll(source, records_max, timeout_s, gather_s)
        ends = [log.records[-1].offset + 1 if log.records else 0 for log in source._topic.partitions]
        return Polled(polled.records, {r: Position(max(n, ends[r.partition])) for r, n in polled.next.items()})

    patch.setattr(MemorySource, "poll", poll_twice)


def _tried_again_while_a_segment_is_in_flight(patch: pytest.MonkeyPatch) -> None:
    take_up = IngestWorker.take_up

    def at_once(worker: IngestWorker, preparer: Preparer, dead_letters: Any) -> None:
        take_up(worker, preparer, dead_letters)
        worker._go_on_if_altered()

    patch.setattr(IngestWorker, "take_up", at_once)


def _an_entry_names_the_version_of_the_start(patch: pytest.MonkeyPatch) -> None:
    prepare_all = Preparer.prepare_all

    def prepare_by_the_first(preparer: Preparer, consumed: Any) -> Any:
        for found in prepare_all(preparer, consumed):
            entry = found.outcome.entry
            by_the_first = None if entry is None else replace(entry, contract_version=1)
            yield found._replace(outcome=found.outcome._replace(entry=by_the_first))

    patch.setattr(Preparer, "prepare_all", prepare_by_the_first)


def _claims_of_a_newer_contract_are_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.plan.strong, "check_claims", lambda contract, indexes: None)


def _subscriptions_hold_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.garbage.collect, "read_holding", lambda *_: HOLDS_NOTHING)


def _a_subscription_is_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeptSubscriptions, "_check", lambda *_: None)


def _what_is_over_may_be_subscribed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Age, "within", lambda *_: True)


def _subscriptions_are_read_before_what_is_over(patch: pytest.MonkeyPatch) -> None:
    def read_first(context: Any, known: Any = None) -> Any:
        memory = KnownSubscriptions()
        read_holding(context, memory, NOTHING_MERGED, {}, 0)
        names = decoded_names(memory.names, context.contract.making).ids
        seen[:] = [{name: memory.of[id].stored for name, id in names.items() if id in memory.of}]
        return claimed(context, known)

    def as_seen(context: Any, known: Any, in_force: Any, histories: Any, now_ms: int) -> Any:
        return holding_of(seen[0], histories, context.contract, now_ms)

    seen: list[Any] = [{}]
    claimed = claimed_histories
    patch.setattr(lancewal_flusher.garbage.collect, "claimed_histories", read_first)
    patch.setattr(lancewal_flusher.garbage.collect, "read_holding", as_seen)


def _former_topics_are_not_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.garbage.subscribed, "former_regions", lambda *_: [])


def _a_former_topic_is_kept_anyway(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_core.table.subscriptions.needs, "is_behind", lambda *_: False)


def _a_damaged_subscription_holds_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Holding, "window_ms", lambda holding, window_ms, contract: window_ms)


def _versions_expire_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.garbage.table_versions, "version_window_ms", lambda *_: 0)


def _a_tag_holds_nothing(patch: pytest.MonkeyPatch) -> None:
    def remove(self: MemoryTable, versions: Any) -> None:
        self.dataset.tags.clear()
        removed(self, versions)

    removed = MemoryTable.remove_versions
    patch.setattr(MemoryTable, "remove_versions", remove)


def _a_branch_holds_nothing(patch: pytest.MonkeyPatch) -> None:
    def named(self: MemoryDataset) -> list[Any]:
        return [f for version in self.versions.values() for f in version.fragments]

    patch.setattr(MemoryDataset, "named", named)
    patch.setattr(MemoryDataset, "held", lambda self: self.tags)


def _a_snapshot_is_known_by_its_number(patch: pytest.MonkeyPatch) -> None:
    def pin(self: OnBranch, table: Any) -> Any:
        return table.branch(self.name).at(self.version)

    patch.setattr(OnBranch, "pin", pin)


def _versions_expire_below_an_unfinished_merge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.garbage.table_versions, "is_finished", lambda *_: True)


def _versions_expire_after_a_restore(patch: pytest.MonkeyPatch) -> None:
    _without_generations(patch, GenerationState.MERGED)


def _versions_expire_beside_a_flush_that_waits(patch: pytest.MonkeyPatch) -> None:
    _without_generations(patch, GenerationState.FLUSHED)


def _without_generations(patch: pytest.MonkeyPatch, state: GenerationState) -> None:
    """Expiry does not see generations in this state."""

    def may_go(context: Any, in_force: Any, kept: SoundHistories, now_ms: int) -> bool:
        seen = {
            region: replace(
                history,
                state=replace(
                    history.state, generations=tuple(r for r in history.state.generations if r.state is not state)
                ),
                pages=(),
            )
            for region, history in kept.of.items()
        }
        return known(context, in_force, replace(kept, of=seen), now_ms)

    known = lancewal_flusher.garbage.table_versions._may_go
    patch.setattr(lancewal_flusher.garbage.table_versions, "_may_go", may_go)


def _versions_expire_beside_damage(patch: pytest.MonkeyPatch) -> None:
    def may_go(context: Any, in_force: Any, kept: SoundHistories, now_ms: int) -> bool:
        return known(context, in_force, replace(kept, damaged={}), now_ms)

    known = lancewal_flusher.garbage.table_versions._may_go
    patch.setattr(lancewal_flusher.garbage.table_versions, "_may_go", may_go)


def _names_that_cannot_be_read_hold_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryTable, "names_fault", lambda table: None)


def _a_flush_has_one_answer(patch: pytest.MonkeyPatch) -> None:
    def begin(opened: Any, flushable: Seq[Flushable], new_id: Any) -> Flushing:
        answers = flush_generations(opened, flushable, new_id)
        return Flushing({one.region: answer for one, answer in zip(flushable, answers, strict=True)})

    patch.setattr(lancewal_ingest.regions.flush_queue, "begin_flushes", begin)


def _one_flush_at_a_time(patch: pytest.MonkeyPatch) -> None:
    begin = FlushQueue._begin

    def begin_alone(self: FlushQueue, *, in_memory: bool) -> None:
        if not self._flights:
            begin(self, in_memory=in_memory)

    patch.setattr(FlushQueue, "_begin", begin_alone)


def _a_file_is_adopted_once_a_part(patch: pytest.MonkeyPatch) -> None:
    def adopted(taken: Seq[RegionInput]) -> list[AdoptedFiles]:
        return [AdoptedFiles(one.adopted, [one]) for one in taken if one.adopted]

    patch.setattr(lancewal_flusher.merge.merge, "adopted_files", adopted)


def _a_flush_is_adopted_with_a_part_of_its_parts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.merge.plan, "is_whole", lambda parts: True)


def _a_flush_is_adopted_beside_later_generations(patch: pytest.MonkeyPatch) -> None:
    known = adopted_files

    def adopted(taken: Seq[RegionInput]) -> list[AdoptedFiles]:
        firsts: dict[str, list[FlushedGeneration]] = {}
        for one in taken:
            firsts.setdefault(one.merge.flushes[0].key, []).append(one.merge.flushes[0])
        files = known(taken)
        named = {found.fragments for found in files}
        whole = [parts[0].fragments for parts in firsts.values() if len(parts) == parts[0].parts > 1]
        return [*files, *(AdoptedFiles(fragments, ()) for fragments in whole if fragments not in named)]

    patch.setattr(lancewal_flusher.merge.merge, "adopted_files", adopted)
    patch.setattr(AdoptedKeys, "add", lambda self, fragments, keys: None)
    patch.setattr(AdoptedFiles, "row_keys", None)


def _lost_files_are_those_of_one_region(patch: pytest.MonkeyPatch) -> None:
    def facts(context: Any, in_force: InForce) -> MergeFacts:
        found = known(context, in_force)
        return replace(found, adopted=dict(sorted(found.adopted.items())[:1]))

    known = lancewal_flusher.merge.finish._facts
    patch.setattr(lancewal_flusher.merge.finish, "_facts", facts)


def _a_flush_that_nobody_names_goes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.garbage.flushes, "_over", lambda *_: True)


def _finished_without_its_record(patch: pytest.MonkeyPatch) -> None:
    def checkpoints_only(self: Watermarks, in_force: InForce, version: TableVersion, kind: Any) -> None:
        if kind == "checkpoint":
            self.record(in_force, version, kind)

    patch.setattr(Watermarks, "recorded", checkpoints_only)


def _a_bundle_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Copy, "is_of", lambda copy, listed: True)


def _a_bundle_stands_for_segments(patch: pytest.MonkeyPatch) -> None:
    behind = lancewal_core.wal.listed.Listed.behind

    def with_bundled(store: Any, log: Any, start: Any) -> Any:
        listed = behind(store, log, start)
        bundled = {
            n: ObjectInfo(paths.wal_segment(log, Sequence(n)), 0, 0)
            for first, last, _ in listed.bundles
            for n in range(first, last + 1)
        }
        return replace(listed, segments={**bundled, **listed.segments})

    patch.setattr(lancewal_core.wal.listed.Listed, "behind", staticmethod(with_bundled))
    _a_bundle_is_believed(patch)


def _an_entry_counts_whole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.plan.at_receipt, "replace", lambda ref, **_: ref)


def _a_version_may_hold_more(patch: pytest.MonkeyPatch) -> None:
    for module in (lancewal_reader.plan.at_positions, lancewal_reader.plan.at_receipt):
        patch.setattr(module, "is_at_or_below", lambda in_force, cut: True)


def _an_entry_counts_whenever_it_was_written(patch: pytest.MonkeyPatch) -> None:
    written_by = lancewal_reader.plan.at_timestamp._written_by
    patch.setattr(
        lancewal_reader.plan.at_timestamp,
        "_written_by",
        lambda context, region, record, ms: written_by(context, region, record, 1 << 62),
    )


def _versions_that_are_gone_showed_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.plan.at_timestamp, "same_rows", lambda *of: True)


def _times_of_records_ascend(patch: pytest.MonkeyPatch) -> None:
    def by_the_first(*arguments: Any) -> list[GenerationRecord]:
        found = generations_behind(*arguments)
        times = [r.record_times and RecordTimes(r.record_times.min_ms, r.record_times.min_ms) for r in found]
        return [replace(record, record_times=time) for record, time in zip(found, times, strict=True)]

    patch.setattr(lancewal_reader.plan.at_record_time, "generations_behind", by_the_first)


def _what_is_trimmed_had_no_such_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.plan.at_record_time, "_check_trimmed", lambda *of: None)


def _the_newest_that_is_trimmed_has_the_highest_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        lancewal_core.region.transitions,
        "_trimmed_time",
        lambda index, boundary, known: known[boundary].record_time_max_ms,
    )


def _what_is_trimmed_had_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.plan.at_timestamp, "generations_behind", lambda *of: generations_behind(*of[:4]))


def _a_token_is_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.reading.reads, "plan_at_least", lambda context, goal, timeout_s: plan_strong(context))


def _a_dead_letter_is_reached(patch: pytest.MonkeyPatch) -> None:
    for module in (lancewal_reader.plan.at_least, lancewal_reader.reading.reads):
        patch.setattr(module, "check_rejected", lambda context, goal: None)


def _what_no_listing_shows_is_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.plan.at_least, "_by_number", lambda *of: None)


def _a_plan_stays_young(patch: pytest.MonkeyPatch) -> None:
    kept = lancewal_reader.reading.reads._Kept
    patch.setattr(lancewal_reader.reading.reads, "_Kept", lambda plan, began, contract: kept(plan, 1e12, contract))


def _former_logs_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_tables.define.alter, "end_region", lambda *_: None)


def _field_ids_come_back(patch: pytest.MonkeyPatch) -> None:
    def as_lance_gives_them(pinned: Any, contract: Any) -> int:
        of_schema: list[int] = [i for ids in pinned.field_ids.values() for i in ids]
        of_files: list[int] = [i for f in pinned.fragments() for ids in f.file_fields for i in ids]
        return max([*of_schema, *of_files])

    patch.setattr(COMMAND, "highest_field_id", as_lance_gives_them)


def _adopted_files_name_dropped_fields(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.merge.region_input, "without_fields", lambda fragment, gone: fragment)


def _columns_are_dropped_before_the_contract(patch: pytest.MonkeyPatch) -> None:
    def grown_and_shrunk(pinned: Any, following: Any) -> Any:
        commit, ours = grown(pinned, following), set(following.field_ids)
        ids = {name: own for name, own in commit.field_ids.items() if ours.issuperset(own)}
        schema = pa.schema([field for field in commit.schema if field.name in ids])
        return replace(commit, schema=schema, field_ids=ids, mark=following.columns_change)

    grown = COMMAND.grown
    patch.setattr(COMMAND, "grown", grown_and_shrunk)


def _the_contract_names_columns_before_the_table_has_them(patch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def look_and_remember(store: Any, table: Any, **how: Any) -> Any:
        seen[:] = [store, *look(store, table, **how)]
        return tuple(seen[1:])

    def put_first(pinned: Any, following: Any) -> Any:
        put(seen[0], SystemClock(), seen[2], following)
        return grown(pinned, following)

    look, grown, put = COMMAND._look, COMMAND.grown, COMMAND.put_next
    patch.setattr(COMMAND, "_look", look_and_remember)
    patch.setattr(COMMAND, "grown", put_first)
    patch.setattr(COMMAND, "put_next", lambda *of: of[-1])


def _the_contract_is_read_before_the_table(patch: pytest.MonkeyPatch) -> None:
    def contract_first(store: Any, table: Any, **how: Any) -> Any:
        contract: Any = newest_contract(store)
        pinned = table.newest()
        return pinned, contract, lancewal_core.table.columns.versions.brought(pinned, contract, contract.field_ids)

    patch.setattr(COMMAND, "_look", contract_first)


def _what_a_command_has_added_goes(patch: pytest.MonkeyPatch) -> None:
    _ids_of_fields_given_up_are_free(patch)
    patch.setattr(lancewal_core.table.columns.versions.Mark, "is_ahead", lambda mark, contract: False)


def _ids_alone_say_what_was_dropped(patch: pytest.MonkeyPatch) -> None:
    def by_ids(pinned: Any, contract: Any, own: Any) -> Any:
        return brought(pinned, contract, range((contract.highest_field_id or 0) + 1))

    brought = COMMAND.brought
    patch.setattr(COMMAND, "brought", by_ids)


def _only_the_ids_of_the_contract_s_fields_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(COMMAND, "ids_of", lambda pinned, contract: contract.field_ids)


def _fields_that_files_have_are_others(patch: pytest.MonkeyPatch) -> None:
    versions = lancewal_core.table.columns.versions
    patch.setattr(versions, "_filled", lambda pinned, ids: set(versions._held(pinned)))


def _types_of_an_unmerged_contract_are_those_of_a_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.reading.result_columns, "_as_wide", lambda rows, own: list(rows.columns))


def _ids_of_fields_given_up_are_free(patch: pytest.MonkeyPatch) -> None:
    versions = lancewal_core.table.columns.versions
    named = versions.highest_named
    patch.setattr(versions, "highest_named", lambda contract: 1 << 30)
    patch.setattr(COMMAND, "highest_field_id", lambda pinned, c: max(named(c), *versions.ids_in_use(pinned)))


def _what_a_dead_process_has_added_is_not_known(patch: pytest.MonkeyPatch) -> None:
    surroundings = COMMAND._surroundings
    patch.setattr(COMMAND, "_surroundings", lambda *of: replace(surroundings(*of), left_over=()))


def _a_silent_store_refuses_a_column(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_ingest.append.new_columns, "Corrupt", LancewalError)


def _a_dropped_name_is_added_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_ingest.append.new_columns, "naming_of", lambda contract: Naming())


def _ids_that_come_back_are_adopted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_core.table.columns.adopt._After, "used", frozenset())


def _rows_are_carried_by_names(patch: pytest.MonkeyPatch) -> None:
    def by_names(written: Any, wanted: Any) -> Any:
        numbers = {n: i for i, n in enumerate(dict.fromkeys([*written.columns.names, *wanted.columns.names]))}
        return carry(*(replace(r, ids=tuple((numbers[n],) for n in r.columns.names)) for r in (written, wanted)))

    carry = lancewal_core.rows.carry.carry
    patch.setattr(lancewal_core.rows.projection, "carry", by_names)


def _files_of_a_widening_stay_right(patch: pytest.MonkeyPatch) -> None:
    def with_old_ones(means: Any, state: Any, pinned: Any, *of: Any) -> Any:
        before = dict(state.written)
        left = write(means, state, pinned, *of)
        there = {f.fragment_id for f in pinned.fragments()}
        state.written.update({i: done for i, done in before.items() if i in there})
        return left

    write = lancewal_flusher.upkeep.widening._write
    patch.setattr(lancewal_flusher.upkeep.widening, "_write", with_old_ones)


def _a_widening_brings_deletes_back(patch: pytest.MonkeyPatch) -> None:
    def as_written(place: Any, table: Any, state: Any, pinned: Any, *of: Any) -> Any:
        then = SimpleNamespace(
            version=pinned.version, schema=pinned.schema, field_ids=pinned.field_ids, fragments=pinned.fragments,
            fragment_json=lambda i: state.written[i][1],
        )  # fmt: skip
        return commit(place, table, state, then, *of)

    commit = lancewal_flusher.upkeep.widening._commit
    patch.setattr(lancewal_flusher.upkeep.widening, "_commit", as_written)


def _rows_are_written_beside_a_widening(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.commit.widened, "in_version", lambda pinned, column: column)


def _a_command_minds_no_widening(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_core.table.columns.versions, "column_tree", lambda column, there=(): column_tree(column))


def _a_value_is_rejected_by_an_old_contract(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IngestWorker, "find_newer", lambda self, terms, fields, form: None)


def _defaults_fill_nothing(patch: pytest.MonkeyPatch) -> None:
    defaults = lancewal_ingest.decode.json.defaults.Defaults
    patch.setattr(defaults, "fill", lambda self, columns, ops, values: columns)


def _members_are_carried_by_names(patch: pytest.MonkeyPatch) -> None:
    def array(values: Any, old: Any, new: Any) -> Any:
        named = {tree.name: tree.id for tree in new.within}
        return carried(
            values, replace(old, within=tuple(replace(t, id=named.get(t.name, t.id)) for t in old.within)), new
        )

    carried = lancewal_core.rows.carry._array
    patch.setattr(lancewal_core.rows.carry, "_array", array)


def _a_struct_may_lose_all_members_of_its_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(COMMAND, "replace", lambda facts, **_: facts)


def _names_of_columns_say_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_core.table.checks, "columns_mark", lambda pinned: "another change")


def _a_restored_column_stays_narrow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_core.table.columns.restored, "_wider", lambda *_: {})


def _a_newer_mark_says_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.commit.widened, "newer_contract", lambda *_: None)


def _a_region_that_begins_has_missed_no_delete(patch: pytest.MonkeyPatch) -> None:
    def only_if_read(opened: Any, region: Any, state: Any, *others: Any) -> Any:
        return None if state is None else known(opened, region, state, *others)

    known = lost_tombstones
    patch.setattr(lancewal_ingest.regions.open, "lost_tombstones", only_if_read)


def _a_key_is_not_compared_with_its_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ComparedKeys, "wrong", lambda self, given, rows: {})


def _a_tombstone_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    decode = Decoder.decode

    def without_tombstones(self: Decoder, records: Records, lies: Any = None) -> Decoded:
        found = decode(self, records, lies)
        kept = np.array([value is not None for value in records.values]) | ~found.is_row
        return replace(found, rows=found.rows.filter(pa.array(kept[found.is_row])), is_row=found.is_row & kept)

    patch.setattr(Decoder, "decode", without_tombstones)


def _a_placeholder_is_stored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnavailableValues, "kept", lambda self, part, *_: part)


def _what_is_passed_over_is_asked_for_its_partition(patch: pytest.MonkeyPatch) -> None:
    decode = Decoder.decode

    def asked(self: Decoder, records: Records, lies: Any = None) -> Decoded:
        found = decode(self, records, lies)
        passed = np.flatnonzero(~found.is_row & ~found.is_rejected).tolist()
        wrong = [at for at in passed if partition_of(records.keys[at] or b"", 2) != lies[at]]
        misrouted = [Rejected(records.offsets[at], MISROUTED, "its key belongs elsewhere") for at in wrong]
        is_rejected = found.is_rejected.copy()
        is_rejected[wrong] = True
        return replace(found, rejected=(*found.rejected, *misrouted), is_rejected=is_rejected)

    patch.setattr(Decoder, "decode", asked)


def _a_record_of_another_key_form_is_taken(patch: pytest.MonkeyPatch) -> None:
    other_forms = ComparedKeys._of_other_forms
    patch.setattr(ComparedKeys, "_of_other_forms", lambda self, given: {} if self._taken else other_forms(self, given))


def _rows_come_before_the_form_of_their_keys(patch: pytest.MonkeyPatch) -> None:
    other_forms = ComparedKeys._of_other_forms
    patch.setattr(ComparedKeys, "_of_other_forms", lambda self, given: other_forms(self, given) if self._taken else {})


def _a_member_takes_its_own_first_form(patch: pytest.MonkeyPatch) -> None:
    def own(context: Any, contract: Any, form: Any) -> Any:
        found = with_first_form(context, contract, form)
        return None if found is None else found.model_copy(update={"key_forms": (form,)})

    patch.setattr(lancewal_ingest.service.worker, "with_first_form", own)


def _a_stray_key_names_the_first_form(patch: pytest.MonkeyPatch) -> None:
    wrong = ComparedKeys.wrong
    patch.setattr(
        ComparedKeys, "wrong", lambda self, given, rows: {**wrong(self, given, rows), **self._of_other_forms(given)}
    )


def _a_misrouted_key_names_the_first_form(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decoded, "is_placed", property(lambda self: self.is_row))


def _what_was_unmerged_has_not_changed(patch: pytest.MonkeyPatch) -> None:
    keys_of = lancewal_reader.changes.net._keys_of
    patch.setattr(
        lancewal_reader.changes.net,
        "_keys_of",
        lambda side, deltas, keys: keys_of(side, deltas if deltas and deltas[0] not in side.plan.deltas else (), keys),
    )


def _records_behind_the_start_change_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.changes.net, "_touched", lambda before, after: after.rows.key.empty_table())


def _rows_that_have_come_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    between = lancewal_reader.changes.net._between
    patch.setattr(
        lancewal_reader.changes.net, "_between", lambda *of: replace(between(*of), come=between(*of).come[:0])
    )


def _a_feed_ends_where_another_version_does(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.changes.feed, "Receipt", type(None))


def _rows_that_have_gone_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    between = lancewal_reader.changes.net._between
    patch.setattr(
        lancewal_reader.changes.net, "_between", lambda *of: replace(between(*of), gone=between(*of).gone[:0])
    )


def _an_expiry_changes_no_row(patch: pytest.MonkeyPatch) -> None:
    classify, same_rows = lancewal_reader.plan.lineage._classify, lancewal_reader.plan.lineage.SameRows
    patch.setattr(
        lancewal_reader.plan.lineage,
        "_classify",
        lambda info, version: same_rows() if PROPERTY_EXPIRY in info.properties else classify(info, version),
    )


def _a_step_is_where_its_version_has_merged(patch: pytest.MonkeyPatch) -> None:
    cut = lancewal_reader.changes.all._cut
    patch.setattr(lancewal_reader.changes.all, "_cut", lambda begin, in_force: cut({}, in_force))


def _sequences_begin_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_reader.changes.records, "reached", lambda receipt: 0)


def _what_is_trimmed_changed_nothing(patch: pytest.MonkeyPatch) -> None:
    def parts(*of: Any) -> Any:
        try:
            return found(*of)
        except OutsideHistoryWindow:
            return []

    found = lancewal_reader.plan.at_receipt.parts_between
    patch.setattr(lancewal_reader.changes.records, "parts_between", parts)


def _a_cut_is_recorded_first(patch: pytest.MonkeyPatch) -> None:
    def keep(catalog: Any, members: Any, wanted: Any, at: Any, tasks: Any) -> Cut:
        write_id = members[0].context.new_id()
        tables = {
            member.name: CutTable(
                uri=member.reads.uri,
                table_uuid=member.contract.table_uuid,
                receipt=str(
                    member.reads.plan(wanted_of(None, None, read_options(at=At.positions(at.of[member.name])))).receipt
                ),
                snapshot=snapshot_name(wanted.name, write_id),
            )
            for member in members
        }
        asked = {"holds": at.holds, "asked_ms": at.asked_ms, "took_ms": at.took_ms}
        cut = Cut(name=wanted.name, moving=False, tables=tables, made_ms=at.asked_ms, write_id=write_id, **asked)
        catalog.swap_cut(wanted.name, None, cut)
        named = {"cut": wanted.name, "catalog": catalog.where, "table": members[0].name, "tables": tuple(tables)}
        note = CutNote(write_id=write_id, **named, **asked)
        lancewal_tables.cuts.make.snapshots_of(members, wanted, at, note, tasks)
        return cut

    patch.setattr(lancewal_tables.cuts.make, "keep", keep)


def _positions_are_asked_for_by_table(patch: pytest.MonkeyPatch) -> None:
    ask = lancewal_flusher.cuts.positions.ask

    def by_table(source: Any, members: Any) -> Any:
        answers = [ask(source, [member]) for member in members]
        return replace(answers[0], of={name: at for one in answers for name, at in one.of.items()})

    patch.setattr(lancewal_flusher.cuts.positions, "ask", by_table)


def _snapshots_of_a_cut_are_not_looked_for_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_tables.cuts.make, "check_snapshots", lambda *_: None)


def _left_over_ones_stay_left_over_once_seen(patch: pytest.MonkeyPatch) -> None:
    is_recorded = lancewal_tables.cuts.left_over._is_recorded
    seen: set[str] = set()

    def once(catalog: Any, one: Any) -> bool:
        if one.branch.name not in seen and is_recorded(catalog, one):
            return True
        seen.add(one.branch.name)
        return False

    patch.setattr(lancewal_tables.cuts.left_over, "_is_recorded", once)


def _unfinished_snapshots_are_marked_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_tables.cuts.left_over, "is_unfinished", lambda branch: False)


def _left_over_ones_are_not_marked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_tables.cuts.left_over, "marked_left_over", dict)


def _snapshots_of_a_cut_are_dropped_before_its_record(patch: pytest.MonkeyPatch) -> None:
    def drop_cut(catalog: Any, cut: Cut, tables: Mapping[str, Any], tasks: Any) -> Any:
        for name, of in cut.tables.items():
            tables[name].drop_branch(of.snapshot)
        catalog.swap_cut(cut.name, cut, None)

    patch.setattr(lancewal_tables.cuts.drop, "drop_cut", drop_cut)


def _a_moving_cut_that_goes_back(patch: pytest.MonkeyPatch) -> None:
    def swapped(self: Any, found: Any, cut: Cut) -> bool:
        while not self._catalog.swap_cut(cut.name, found, cut):
            found = self._catalog.cut(cut.name)
            cut = cut.model_copy(update={"number": found.number + 1})
        return True

    patch.setattr(lancewal_flusher.cuts.moving.MovingCut, "_swapped", swapped)


def _an_end_that_is_late_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.cuts.moving.MovingCut, "_not_back", lambda self, members, at: at.of)


def _who_lags_is_left_out_unasked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_flusher.cuts.moving.MovingCut, "_holds", lambda *_: False)


def _a_schema_is_asked_for_anew(patch: pytest.MonkeyPatch) -> None:
    def look_up(self: Any, key: Any, waited_s: float | None, doubted: bool) -> bool:
        schema = self._registry.schema(key)
        if schema is None and (waited_s is None or waited_s < lancewal_ingest.registry.lookups.NOT_FOUND_S):
            return False
        with suppress(LancewalError):
            self.schemas.put_first(key, schema, self._clock, self._new_id)
        self.schemas._known[key] = (stored_schema(schema, "anew"),)
        return True

    patch.setattr(lancewal_ingest.registry.lookups.SchemaLookups, "_look_up", look_up)


def _rows_come_before_their_schema(patch: pytest.MonkeyPatch) -> None:
    put_first = WriterSchemas.put_first

    def early(self: Any, key: Any, schema: Any, clock: Any, new_id: Any, counts: int) -> Any:
        with suppress(LancewalError):
            put_first(self, key, schema, clock, new_id, counts)
        self._known[key] = (stored_schema(schema, "early"),)
        return self._known[key]

    patch.setattr(WriterSchemas, "put_first", early)


def _another_content_of_a_schema_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_core.wal.writer_schemas, "check_same", lambda *_: None)
    patch.setattr(lancewal_ingest.registry.comparison, "check_same", lambda *_: None)


def _records_without_a_schema_are_not_given_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Intake, "give_back", lambda *_: None)


def _schemas_in_use_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lancewal_ingest.registry.comparison.SchemaComparison, "begin_if_due", lambda *_: False)


MUTATIONS: dict[str, Patch] = {
    "a record of another key form is taken": _a_record_of_another_key_form_is_taken,
    "rows come before the form of their keys": _rows_come_before_the_form_of_their_keys,
    "a member takes its own first form": _a_member_takes_its_own_first_form,
    "a misrouted key names the first form": _a_misrouted_key_names_the_first_form,
    "a stray key names the first form": _a_stray_key_names_the_first_form,
    "a schema is asked for anew": _a_schema_is_asked_for_anew,
    "rows come before their schema": _rows_come_before_their_schema,
    "another content of a schema is taken": _another_content_of_a_schema_is_taken,
    "schemas in use are not compared": _schemas_in_use_are_not_compared,
    "records without a schema are not given back": _records_without_a_schema_are_not_given_back,
    "rows that have gone are not compared": _rows_that_have_gone_are_not_compared,
    "an expiry changes no row": _an_expiry_changes_no_row,
    "a step is where its version has merged": _a_step_is_where_its_version_has_merged,
    "sequences begin anew": _sequences_begin_anew,
    "what is trimmed changed nothing": _what_is_trimmed_changed_nothing,
    "what was unmerged has not changed": _what_was_unmerged_has_not_changed,
    "records behind the start change nothing": _records_behind_the_start_change_nothing,
    "rows that have come are not compared": _rows_that_have_come_are_not_compared,
    "a feed ends where another version does": _a_feed_ends_where_another_version_does,
    "first records stop nothing": _first_records_stop_nothing,
    "deletes count as rows": _deletes_count_as_rows,
    "a claim counts no records": _a_claim_counts_no_records,
    "a seal counts no records": _a_seal_counts_no_records,
    "no fence": _no_fence,
    "others' generations tell nothing of a log": _others_generations_tell_nothing_of_a_log,
    "declined is claimed too": _declined_is_claimed_too,
    "Kafka is asked before logs are ended": _kafka_is_asked_before_logs_are_ended,
    "no sentinel": _no_sentinel,
    "delete before the boundary moves": _delete_before_the_boundary_moves,
    "an index changes while a segment is unsettled": _index_changes_while_unsettled,
    "a seal ends where the log ends by then": _a_seal_ends_where_the_log_ends_by_then,
    "a bundle is believed": _a_bundle_is_believed,
    "a bundle stands for segments": _a_bundle_stands_for_segments,
    "joining over a gap": _join_over_a_gap,
    "no proof of a walk's end": _no_proof_of_a_walk_s_end,
    "a log's end is not confirmed": _a_log_s_end_is_not_confirmed,
    "any entries are all": _any_entries_are_all,
    "candidates after the indexes": _candidates_after_the_indexes,
    "regions by listing": _regions_by_listing,
    "what a damaged region needs is not kept": _what_a_damaged_region_needs_is_not_kept,
    "commit by dataset object": _commit_by_dataset_object,
    "marked before the follow-up": _marked_before_the_follow_up,
    "indexes before a merge was known": _indexes_before_a_merge_was_known,
    "unknown is stored": _unknown_is_stored,
    "stale claim": _stale_claim,
    "next without position": _next_without_position,
    "position asked too late": _position_asked_too_late,
    "tried again while a segment is in flight": _tried_again_while_a_segment_is_in_flight,
    "an entry names the version of the start": _an_entry_names_the_version_of_the_start,
    "claims of a newer contract are read": _claims_of_a_newer_contract_are_read,
    "versions expire at once": _versions_expire_at_once,
    "a tag holds nothing": _a_tag_holds_nothing,
    "a branch holds nothing": _a_branch_holds_nothing,
    "a snapshot is known by its number": _a_snapshot_is_known_by_its_number,
    "versions expire below an unfinished merge": _versions_expire_below_an_unfinished_merge,
    "versions expire after a restore": _versions_expire_after_a_restore,
    "versions expire beside a flush that waits": _versions_expire_beside_a_flush_that_waits,
    "versions expire beside damage": _versions_expire_beside_damage,
    "names that cannot be read hold nothing": _names_that_cannot_be_read_hold_nothing,
    "finished without its record": _finished_without_its_record,
    "subscriptions hold nothing": _subscriptions_hold_nothing,
    "a subscription is not looked at again": _a_subscription_is_not_looked_at_again,
    "what is over may be subscribed": _what_is_over_may_be_subscribed,
    "subscriptions are read before what is over": _subscriptions_are_read_before_what_is_over,
    "former topics are not held": _former_topics_are_not_held,
    "a former topic is kept anyway": _a_former_topic_is_kept_anyway,
    "a damaged subscription holds nothing": _a_damaged_subscription_holds_nothing,
    "a flush has one answer": _a_flush_has_one_answer,
    "one flush at a time": _one_flush_at_a_time,
    "a file is adopted once a part": _a_file_is_adopted_once_a_part,
    "a flush is adopted with a part of its parts": _a_flush_is_adopted_with_a_part_of_its_parts,
    "a flush is adopted beside later generations": _a_flush_is_adopted_beside_later_generations,
    "lost files are those of one region": _lost_files_are_those_of_one_region,
    "a flush that nobody names goes": _a_flush_that_nobody_names_goes,
    "an entry counts whole below a cut": _an_entry_counts_whole,
    "a version may hold more than the positions": _a_version_may_hold_more,
    "an entry counts whenever it was written": _an_entry_counts_whenever_it_was_written,
    "versions that are gone showed the same": _versions_that_are_gone_showed_the_same,
    "times of records ascend": _times_of_records_ascend,
    "what is trimmed had no such time": _what_is_trimmed_had_no_such_time,
    "the newest that is trimmed has the highest time": _the_newest_that_is_trimmed_has_the_highest_time,
    "what is trimmed had records": _what_is_trimmed_had_records,
    "a token is not waited for": _a_token_is_not_waited_for,
    "a dead letter is reached": _a_dead_letter_is_reached,
    "what no listing shows is not asked for": _what_no_listing_shows_is_not_asked_for,
    "a plan stays young": _a_plan_stays_young,
    "keys have no making": _keys_have_no_making,
    "former logs go on": _former_logs_go_on,
    "a dropped table is not noticed": _a_dropped_table_is_not_noticed,
    "a claim of another group is not noticed": _a_claim_of_another_group_is_not_noticed,
    "groups are not compared": _groups_are_not_compared,
    "a claim does not look for a drop": _a_claim_does_not_look_for_a_drop,
    "a dropped table's logs go on": _logs_of_a_dropped_table_go_on,
    "the fences come before the drop": _fences_before_the_drop,
    "a deletion swaps no contract": _a_deletion_swaps_no_contract,
    "too many keys in conflict end the merge": _too_many_keys_end_the_merge,
    "ingest goes on beside keys in conflict": _ingest_goes_on_beside_keys_in_conflict,
    "a region that begins has missed no delete": _a_region_that_begins_has_missed_no_delete,
    "a key is not compared with its row": _a_key_is_not_compared_with_its_row,
    "a placeholder is stored": _a_placeholder_is_stored,
    "a tombstone is passed over": _a_tombstone_is_passed_over,
    "what is passed over is asked for its partition": _what_is_passed_over_is_asked_for_its_partition,
    "a region is claimed by an older contract": _a_region_is_claimed_by_an_older_contract,
    "field ids come back": _field_ids_come_back,
    "adopted files name dropped fields": _adopted_files_name_dropped_fields,
    "columns are dropped before the contract": _columns_are_dropped_before_the_contract,
    "the contract names columns before the table has them": _the_contract_names_columns_before_the_table_has_them,
    "the contract is read before the table": _the_contract_is_read_before_the_table,
    "what a command has added goes": _what_a_command_has_added_goes,
    "ids that come back are adopted": _ids_that_come_back_are_adopted,
    "ids alone say what was dropped": _ids_alone_say_what_was_dropped,
    "only the ids of the contract's fields go": _only_the_ids_of_the_contract_s_fields_go,
    "fields that files have are others'": _fields_that_files_have_are_others,
    "types of an unmerged contract are those of a read": _types_of_an_unmerged_contract_are_those_of_a_read,
    "ids of fields given up are free": _ids_of_fields_given_up_are_free,
    "what a dead process has added is not known": _what_a_dead_process_has_added_is_not_known,
    "a silent store refuses a column": _a_silent_store_refuses_a_column,
    "a dropped name is added again": _a_dropped_name_is_added_again,
    "rows are carried by names": _rows_are_carried_by_names,
    "files of a widening stay right": _files_of_a_widening_stay_right,
    "a widening brings deletes back": _a_widening_brings_deletes_back,
    "rows are written beside a widening": _rows_are_written_beside_a_widening,
    "a command minds no widening": _a_command_minds_no_widening,
    "a value is rejected by an old contract": _a_value_is_rejected_by_an_old_contract,
    "defaults fill nothing": _defaults_fill_nothing,
    "members are carried by names": _members_are_carried_by_names,
    "a struct may lose all members of its files": _a_struct_may_lose_all_members_of_its_files,
    "names of columns say nothing": _names_of_columns_say_nothing,
    "a restored column stays narrow": _a_restored_column_stays_narrow,
    "a newer mark says nothing": _a_newer_mark_says_nothing,
    "a cut is recorded first": _a_cut_is_recorded_first,
    "a moving cut that goes back": _a_moving_cut_that_goes_back,
    "an end that is late counts": _an_end_that_is_late_counts,
    "who lags is left out unasked": _who_lags_is_left_out_unasked,
    "positions are asked for by table": _positions_are_asked_for_by_table,
    "snapshots of a cut are not looked for again": _snapshots_of_a_cut_are_not_looked_for_again,
    "left-over ones stay left over once seen": _left_over_ones_stay_left_over_once_seen,
    "unfinished snapshots are marked too": _unfinished_snapshots_are_marked_too,
    "left-over ones are not marked": _left_over_ones_are_not_marked,
    "snapshots of a cut are dropped before its record": _snapshots_of_a_cut_are_dropped_before_its_record,
}

KINDS_TO_SEARCH: dict[str, str] = {
    "rows that have gone are not compared": "expiry",
    "an expiry changes no row": "expiry",
    "a step is where its version has merged": "expiry",
    "sequences begin anew": "feeds",
    "what is trimmed changed nothing": "long lives",
    "subscriptions hold nothing": "subscriptions",
    "a branch holds nothing": "snapshots",
    "no fence": "slow members",
    "an index changes while a segment is unsettled": "slow members",
    "a seal ends where the log ends by then": "slow seals",
    "stale claim": "quiet regions",
    "joining over a gap": "hand-overs",
    "no proof of a walk's end": "slow readers",
    "a log's end is not confirmed": "lost segments",
    "any entries are all": "lost segments",
    "regions by listing": "lost listings",
    "commit by dataset object": "slow flushers",
    "marked before the follow-up": "slow flushers",
    "an entry counts whole below a cut": "points",
    "a version may hold more than the positions": "points",
    "an entry counts whenever it was written": "points",
    "times of records ascend": "points",
    "what is trimmed had records": "points",
    "what is trimmed had no such time": "points",
    "the newest that is trimmed has the highest time": "points",
    "a token is not waited for": "points",
    "a dead letter is reached": "points",
    "a plan stays young": "points",
    "a region is claimed by an older contract": "columns",
    "field ids come back": "columns",
    "adopted files name dropped fields": "columns",
    "columns are dropped before the contract": "columns",
    "the contract names columns before the table has them": "columns",
    "the contract is read before the table": "columns",
    "what a command has added goes": "columns",
    "ids alone say what was dropped": "columns",
    "types of an unmerged contract are those of a read": "slow columns",
    "ids of fields given up are free": "columns",
    "ids that come back are adopted": "columns",
    "rows are carried by names": "columns",
    "files of a widening stay right": "columns",
    "a widening brings deletes back": "columns",
    "rows are written beside a widening": "columns",
    "a command minds no widening": "columns",
    "a value is rejected by an old contract": "columns",
    "defaults fill nothing": "columns",
    "members are carried by names": "columns",
    "a struct may lose all members of its files": "columns",
    "names of columns say nothing": "columns",
    "a newer mark says nothing": "columns",
    "a cut is recorded first": "cuts",
}
"""The kind of random schedules in which a mutation is looked for; those that are not named: ``swarm``."""

NOT_IN_SCHEDULES = {
    "former topics are not held",
    "a former topic is kept anyway",
    "positions are asked for by table",
    "snapshots of a cut are not looked for again",
    "left-over ones stay left over once seen",
    "left-over ones are not marked",
    "snapshots of a cut are dropped before its record",
    "a damaged subscription holds nothing",
    "a subscription is not looked at again",
    "what is over may be subscribed",
    "subscriptions are read before what is over",
    "a restored column stays narrow",
    "a bundle is believed",
    "a bundle stands for segments",
    "tried again while a segment is in flight",
    "an entry names the version of the start",
    "claims of a newer contract are read",
    "what a damaged region needs is not kept",
    "a tag holds nothing",
    "a snapshot is known by its number",
    "versions expire after a restore",
    "versions expire beside a flush that waits",
    "versions expire beside damage",
    "names that cannot be read hold nothing",
    "a flush that nobody names goes",
    "versions that are gone showed the same",
    "what no listing shows is not asked for",
    "keys have no making",
    "a dropped table is not noticed",
    "former logs go on",
    "a claim of another group is not noticed",
    "groups are not compared",
    "a claim does not look for a drop",
    "a dropped table's logs go on",
    "the fences come before the drop",
    "a deletion swaps no contract",
    "too many keys in conflict end the merge",
    "ingest goes on beside keys in conflict",
    "first records stop nothing",
    "deletes count as rows",
    "a claim counts no records",
    "a seal counts no records",
    "a region that begins has missed no delete",
    "a key is not compared with its row",
    "a placeholder is stored",
    "a tombstone is passed over",
    "what is passed over is asked for its partition",
    "a schema is asked for anew",
    "rows come before their schema",
    "another content of a schema is taken",
    "schemas in use are not compared",
    "records without a schema are not given back",
    "a record of another key form is taken",
    "rows come before the form of their keys",
    "a member takes its own first form",
    "a stray key names the first form",
}
"""Mutations that no random schedule can show: none of them damages a subscription, has many bad records before its
first row, replaces a segment, minds a true copy of a lost one, makes another version of the contract, damages a page
or the name of a branch, tags a version, takes the name of a snapshot again, has a person decide about a restore,
leaves a flush for a week, flushes a generation again while one that wrote it before stands still, drops the table or
the topic and makes it again, has two consumer groups, has two tables or two makers of one cut, keys by anything but
canonical keys, or removes a version that a user made from between two others and then asks for its time. One of a
listing can be shown, but 216 schedules did not: a listing must hide the very segment of a dead letter whose token is
used then. No schedule has values of a registry. Three of subscriptions can be shown, but 36 to 77 schedules did not:
a round must decide within the moment in which one is made of old state. One of cuts can be shown, but 23 schedules
did not: who drops a cut must die at once."""
