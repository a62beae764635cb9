"""Garbage collection: what is merged and older than the history window makes room.

Guarantees
 1. Nothing is deleted that a table version in force, an index or a history page above the trimmed boundary names.
    What cannot be seen whole (an index below the table's watermark, a page missing from a listing, a newer contract)
    ends the round.
 2. The boundary moves forward in the index before anything below it is deleted.
 3. Only objects under ``_lancewal/`` are deleted; adopted data files are the table's.
 4. A running reader has the grace period: a free object is deleted by a later round, at least that long after it was
    first found free, if it still is.  The same rule covers an index change that is still on its way.
 5. A fence outlives its log's segments by seven days, so that a process frozen for hours still meets it.
 6. Any error while reading ends the round before anything is deleted.
 7. Of each region's index, and of the key catalog, what remains is version 1 and one run up to the newest: versions go
    oldest first.

Steps of ``collect_garbage``
 1. List the candidates: WAL segments, snapshot files, parts of key runs.  Before the indexes: a generation opened later
    begins behind every segment listed here.
 2. Read W of the newest table version, then the index and the history pages of every region; regions come from the
    contract, never from a listing.  After a restore, or where W is unknown, that is an error: nothing is trimmed.
 3. Per region: long indexes leave their oldest MERGED generations to a history page; generations whose history window is
    over, and that W holds, go behind the trimmed boundary.  Each by compare-and-swap.
 4. What of the candidates is free now?  Segments below the lowest first segment that a kept generation of their log has
    (all, where none is kept); snapshot files of trimmed generations and of attempts that lost; parts that the newest key
    catalog does not name.
 5. Find the old index versions (over seven days, not among the newest hundred, never version 1), the old key catalogs
    (the same, over an hour), the pages below the boundary, and parcels of tasks that are older than a day.
 6. Delete what was free at an earlier round already, grace period ago, and remember the rest; then what step 5 found.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import assert_never

from lancewal_core import paths
from lancewal_core.errors import ContractMismatch, ObjectCorrupt, StoreUnavailable
from lancewal_core.failpoints import point
from lancewal_core.ids import Generation, LogId, Region, Sequence
from lancewal_core.key_catalog import FAMILY
from lancewal_core.region_index import GenerationRecord, State, decode_history, encode_history
from lancewal_core.regions import index_family
from lancewal_core.segment import Fence, decode_segment
from lancewal_core.store import Done, Lost, ObjectInfo, Unknown, put_once
from lancewal_core.transitions import paged, trim
from lancewal_core.versioned import FIRST_VERSION, Family
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.history import History, read_history

FENCE_KEPT_MS = 7 * 24 * 3600 * 1000
INDEX_KEPT_MS = FENCE_KEPT_MS
CATALOGS_KEPT_MS = 3600 * 1000
"""Who goes on from an older catalog than that looks at a listing first; and a catalog is only a hint."""
VERSIONS_KEPT = 100
PARCEL_KEPT_MS = 24 * 3600 * 1000
"""Far longer than any merge takes; only a crash leaves a parcel behind."""
FENCE_SIZE_MAX = 512
"""No data segment is as small; an object up to this size is looked into."""
PAGE_AT = 64
"""MERGED generations in an index from which on it leaves all but ``PAGE_REST`` of them to a page."""
PAGE_REST = 16


@dataclass(slots=True)
class GarbageState:
    """What one flusher remembers between rounds: since when (monotonic seconds) an object is free."""

    free_since: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GarbageReport:
    """Objects deleted in this round, and objects that wait for their grace period."""

    deleted: int
    waiting: int
    trimmed: Mapping[Region, Generation]


def collect_garbage(context: FlusherContext, state: GarbageState) -> GarbageReport:
    """One round; see the module docstring."""
    now = context.clock.now_ms()
    # Step 1
    segments = list(context.store.list(paths.wal_prefix()))
    key_parts = list(context.store.list(paths.key_parts_prefix()))
    snapshots = [
        info for region in context.contract.regions for info in context.store.list(paths.snapshots_prefix(region))
    ]
    # Step 2
    _check_contract(context)
    in_force = context.watermarks.newest()[1]
    histories = {
        h.index.region: h for r in context.contract.regions if (h := read_history(context, r, in_force)) is not None
    }
    # Step 3
    trimmed: dict[Region, Generation] = {}
    for region, history in list(histories.items()):
        changed = _shorten(context, history, in_force.generation(region), now)
        if changed is not None:
            histories[region] = changed
            trimmed[region] = changed.index.trimmed_generation
    # Step 4
    free = _free_segments(context, segments, histories, now) | _free_snapshots(snapshots, histories)
    free |= _free_key_parts(context, key_parts)
    # Step 5
    old = [key for region in histories for key in _old_versions(context, index_family(region), now, INDEX_KEPT_MS)]
    old += _old_versions(context, FAMILY, now, CATALOGS_KEPT_MS)
    old += [key for history in histories.values() for key in _old_pages(history)]
    old += [i.key for i in context.store.list(paths.parcels_prefix()) if now - i.modified_ms >= PARCEL_KEPT_MS]
    # Step 6
    monotonic = context.clock.monotonic()
    due = sorted(k for k in free if monotonic - state.free_since.get(k, float("inf")) >= context.contract.grace_s)
    state.free_since = {key: state.free_since.get(key, monotonic) for key in free}
    _delete(context, due)
    for key in due:
        del state.free_since[key]
    _delete(context, old)
    return GarbageReport(len(due) + len(old), len(state.free_since), trimmed)


def _check_contract(context: FlusherContext) -> None:
    """Regions that only a newer contract knows would seem to need nothing."""
    newer = paths.contract_version(context.contract.version + 1)
    if context.store.get(newer) is not None:
        raise ContractMismatch(
            f"the table's contract has changed since this flusher started with version {context.contract.version}: "
            f"{newer} exists. Start the flusher again",
            object=newer,
        )


def _shorten(context: FlusherContext, history: History, watermark: Generation, now: int) -> History | None:
    """Step 3 for one region; the new state, or None when nothing changed."""
    region = history.index.region
    changed: History | None = None
    merged = [r for r in history.index.generations if r.state is State.MERGED and r.generation <= watermark]
    if len(merged) >= PAGE_AT:
        page = tuple(merged[:-PAGE_REST])
        key = paths.history_page(region, page[0].generation)
        page = _put_page(context, region, history.index.contract_version, key, page)
        ours, index = context.indexes.swap(
            region, lambda found: found and paged(found, page[-1].generation, context.new_id())
        )
        if ours and index is not None:
            changed = history = History(index, (*history.pages, (key, page)))
    boundary = _boundary(history, watermark, now, context.contract.history_window_s * 1000)
    if boundary is not None:
        with point("trim.cas", region=region.name, generation=boundary.generation):
            ours, index = context.indexes.swap(region, lambda found: found and trim(found, boundary, context.new_id()))
        if ours and index is not None:
            changed = History(index, history.pages)
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


def _boundary(history: History, watermark: Generation, now: int, window_ms: int) -> GenerationRecord | None:
    """The newest generation whose history window is over, if that lies above the boundary so far; never the newest."""
    found: GenerationRecord | None = None
    for record in history.generations[:-1]:
        if record.state is not State.MERGED or record.generation > watermark:
            break
        if record.merged_at_ms is None or now - record.merged_at_ms < window_ms:
            break
        found = record
    return found


def _free_segments(
    context: FlusherContext, segments: Seq[ObjectInfo], histories: Mapping[Region, History], now: int
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
    try:
        return data is not None and isinstance(decode_segment(data, key, ()), Fence)
    except ObjectCorrupt:
        return True  # it may have been one: kept as long as that


def _free_snapshots(snapshots: Seq[ObjectInfo], histories: Mapping[Region, History]) -> set[str]:
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


def _free_key_parts(context: FlusherContext, listed: Seq[ObjectInfo]) -> set[str]:
    """Parts of key runs that the newest catalog does not name: of merged runs, and of attempts that were never swapped in."""
    catalog = context.keys.catalogs.read()
    if context.keys.catalogs.problem is not None:
        return set()
    named = {part.object for run in catalog.runs for part in run.parts}
    return {info.key for info in listed if paths.parse_key_part(info.key) is not None} - named


def _old_versions(context: FlusherContext, family: Family, now: int, kept_ms: int) -> list[str]:
    """Versions that may go, oldest first; none where the listing leaves one out that is older or between them."""
    found = []
    for info in context.store.list(family.prefix):
        version = family.parse(info.key)
        if version is not None and version != FIRST_VERSION:
            found.append((version, info.modified_ms))
    found.sort()
    old: list[int] = []
    for version, modified_ms in found[:-VERSIONS_KEPT]:
        if now - modified_ms < kept_ms or (old and version != old[-1] + 1):
            break
        old.append(version)
    if old and old[0] - 1 != FIRST_VERSION and context.store.get(family.key(old[0] - 1)) is not None:
        return []
    return [family.key(version) for version in old]


def _old_pages(history: History) -> list[str]:
    return [key for key, page in history.pages if page[-1].generation <= history.index.trimmed_generation]


def _delete(context: FlusherContext, keys: Seq[str]) -> None:
    if keys:
        with point("trim.delete", first=keys[0], objects=len(keys)):
            context.store.delete(keys)
