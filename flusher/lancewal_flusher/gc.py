"""Garbage collection: what is merged and older than the history window makes room.

Guarantees
 1. Nothing is deleted that a table version in force, an index or a history page above the trimmed boundary names.
 2. The boundary moves forward in the index before anything below it is deleted.
 3. Only objects under ``_lancewal/`` are deleted; adopted data files are the table's.
 4. A running reader has the grace period: a free object is deleted by a later round, at least that long after it was
    first found free, if it still is.
 5. A fence outlives its log's segments by seven days, so that a process frozen for hours still meets it.
 6. Any error while reading ends the round before anything is deleted.

Steps of ``collect_garbage``
 1. List the candidates: WAL segments and snapshot files.  Before the indexes: a generation opened later begins behind
    every segment listed here.
 2. Read the index and the history pages of every region; regions come from the contract, never from a listing.
 3. Per region: long indexes leave their oldest MERGED generations to a history page; generations whose history window is
    over go behind the trimmed boundary.  Each by compare-and-swap.
 4. What of the candidates is free now?  Segments below the lowest first segment that a kept generation of their log has
    (all, where none is kept); snapshot files of trimmed generations and of attempts that lost.
 5. Delete what was free at an earlier round already, grace period ago; remember the rest.
 6. Old index versions (over seven days, not among the newest hundred, never version 1), in ascending order, and pages
    below the boundary.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import assert_never

from lancewal_core import paths
from lancewal_core.errors import StoreUnavailable
from lancewal_core.failpoints import point
from lancewal_core.ids import Generation, LogId, Region, Sequence
from lancewal_core.region_index import GenerationRecord, RegionIndex, State, decode_history, encode_history
from lancewal_core.segment import Fence, decode_segment
from lancewal_core.store import Done, Lost, ObjectInfo, Unknown, put_once
from lancewal_core.transitions import paged, trim
from lancewal_flusher.context import FlusherContext

FENCE_KEPT_MS = 7 * 24 * 3600 * 1000
INDEX_KEPT_MS = FENCE_KEPT_MS
INDEX_VERSIONS_KEPT = 100
FENCE_SIZE_MAX = 512
"""No data segment is as small; an object up to this size is looked into."""
PAGE_AT = 64
"""MERGED generations in an index from which on it leaves all but ``PAGE_REST`` of them to a page."""
PAGE_REST = 16


@dataclass(slots=True)
class GarbageState:
    """What one flusher remembers between rounds: since when (wall clock, ms) an object is free."""

    free_since: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """Objects deleted in this round, and objects that wait for their grace period."""

    deleted: int
    waiting: int
    trimmed: Mapping[Region, Generation]


@dataclass(frozen=True, slots=True)
class _History:
    """Everything that is kept of a region: generations of its pages above the boundary, then those of its index."""

    index: RegionIndex
    pages: tuple[tuple[str, tuple[GenerationRecord, ...]], ...]

    @property
    def generations(self) -> tuple[GenerationRecord, ...]:
        known = {r.generation: r for _, page in self.pages for r in page}
        known |= {r.generation: r for r in self.index.generations}
        return tuple(r for _, r in sorted(known.items()) if r.generation > self.index.trimmed_generation)


def collect_garbage(context: FlusherContext, state: GarbageState) -> GarbageReport:
    """One round; see the module docstring."""
    now = context.clock.now_ms()
    # Step 1
    segments = list(context.store.list(paths.wal_prefix()))
    snapshots = [
        info for region in context.contract.regions for info in context.store.list(paths.snapshots_prefix(region))
    ]
    # Step 2
    histories = {h.index.region: h for r in context.contract.regions if (h := _read(context, r)) is not None}
    # Step 3
    trimmed: dict[Region, Generation] = {}
    for region, history in list(histories.items()):
        changed = _shorten(context, history, now)
        if changed is not None:
            histories[region] = changed
            trimmed[region] = changed.index.trimmed_generation
    # Step 4
    free = _free_segments(context, segments, histories, now) | _free_snapshots(snapshots, histories)
    # Step 5
    state.free_since = {key: state.free_since.get(key, now) for key in free}
    grace_ms = context.contract.grace_s * 1000
    due = sorted(k for k, since in state.free_since.items() if since < now and now - since >= grace_ms)
    _delete(context, due)
    for key in due:
        del state.free_since[key]
    # Step 6
    old = [key for region, history in histories.items() for key in _old_versions(context, region, history, now)]
    _delete(context, old)
    return GarbageReport(len(due) + len(old), len(state.free_since), trimmed)


def _read(context: FlusherContext, region: Region) -> _History | None:
    index = context.indexes.read(region)
    if index is None:
        return None
    pages = []
    for info in context.store.list(paths.history_prefix(region)):
        if paths.parse_history_page(info.key) is None:
            continue
        data = context.store.get(info.key)
        if data is not None:
            pages.append((info.key, decode_history(data, info.key).generations))
    return _History(index, tuple(sorted(pages)))


def _shorten(context: FlusherContext, history: _History, now: int) -> _History | None:
    """Step 3 for one region; the new state, or None when nothing changed."""
    region = history.index.region
    changed: _History | None = None
    merged = [r for r in history.index.generations if r.state is State.MERGED]
    if len(merged) >= PAGE_AT:
        page = tuple(merged[:-PAGE_REST])
        key = paths.history_page(region, page[0].generation)
        page = _put_page(context, region, history.index.contract_version, key, page)
        ours, index = context.indexes.swap(
            region, lambda found: found and paged(found, page[-1].generation, context.new_id())
        )
        if ours and index is not None:
            changed = history = _History(index, (*history.pages, (key, page)))
    boundary = _boundary(history, now, context.contract.history_window_s * 1000)
    if boundary is not None:
        with point("trim.cas", region=region.name, generation=boundary.generation):
            ours, index = context.indexes.swap(region, lambda found: found and trim(found, boundary, context.new_id()))
        if ours and index is not None:
            changed = _History(index, history.pages)
    return changed


def _put_page(
    context: FlusherContext, region: Region, contract_version: int, key: str, page: tuple[GenerationRecord, ...]
) -> tuple[GenerationRecord, ...]:
    """Write a history page; one that is there already is taken as it is: exactly its generations leave the index."""
    outcome = put_once(context.store, key, encode_history(region, contract_version, page))
    match outcome:
        case Done():
            return page
        case Lost(found=found):
            return decode_history(found, key).generations
        case Unknown(cause=cause):
            raise StoreUnavailable(f"no verdict on writing {key}: {cause}", object=key)
        case _:
            assert_never(outcome)


def _boundary(history: _History, now: int, window_ms: int) -> GenerationRecord | None:
    """The newest generation whose history window is over, if that lies above the boundary so far; never the newest."""
    found: GenerationRecord | None = None
    for record in history.generations[:-1]:
        if record.state is not State.MERGED or record.merged_at_ms is None or now - record.merged_at_ms < window_ms:
            break
        found = record
    return found


def _free_segments(
    context: FlusherContext, segments: Seq[ObjectInfo], histories: Mapping[Region, _History], now: int
) -> set[str]:
    needed: dict[LogId, Sequence] = {}
    for history in histories.values():
        for record in history.generations:
            needed[record.log] = min(needed.get(record.log, record.first_sequence), record.first_sequence)
    free: set[str] = set()
    for info in segments:
        parsed = paths.parse_wal_segment(info.key)
        if parsed is None or (parsed[0] in needed and parsed[1] >= needed[parsed[0]]):
            continue
        if now - info.modified_ms < FENCE_KEPT_MS and info.size <= FENCE_SIZE_MAX and _is_fence(context, info.key):
            continue
        free.add(info.key)
    return free


def _is_fence(context: FlusherContext, key: str) -> bool:
    data = context.store.get(key)
    return data is not None and isinstance(decode_segment(data, key, ()), Fence)


def _free_snapshots(snapshots: Seq[ObjectInfo], histories: Mapping[Region, _History]) -> set[str]:
    free: set[str] = set()
    for info in snapshots:
        parsed = paths.parse_snapshot_file(info.key)
        if parsed is None or parsed[0] not in histories:
            continue
        region, generation, attempt, _ = parsed
        history = histories[region]
        if generation <= history.index.trimmed_generation:
            free.add(info.key)
            continue
        record = next((r for r in history.generations if r.generation == generation), None)
        if record is None or record.snapshot is None:
            continue  # still SEALED: the attempt may be the one that wins
        if not record.snapshot.startswith(paths.snapshot_prefix(region, generation, attempt)):
            free.add(info.key)
    return free


def _old_versions(context: FlusherContext, region: Region, history: _History, now: int) -> list[str]:
    """Step 6 for one region: keys in the order of deletion."""
    found = []
    for info in context.store.list(paths.index_prefix(region)):
        parsed = paths.parse_index_version(info.key)
        if parsed is not None:
            found.append((parsed[1], info))
    found.sort(key=lambda item: item[0])
    old = []
    for version, info in found[:-INDEX_VERSIONS_KEPT]:
        if version == 1:
            continue
        if now - info.modified_ms < INDEX_KEPT_MS:
            break
        old.append(info.key)
    trimmed = history.index.trimmed_generation
    return old + [key for key, page in history.pages if page[-1].generation <= trimmed]


def _delete(context: FlusherContext, keys: Seq[str]) -> None:
    if keys:
        with point("trim.delete", first=keys[0], objects=len(keys)):
            context.store.delete(keys)
