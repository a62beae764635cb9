"""Choose the generations that the next merge takes: a pure decision.

For each region a merge either *adopts* the files of one generation unchanged, or *combines* consecutive small
generations.  To combine is to fold generations, and to write the resulting rows, the *survivors*, as new rows.  A
merge never adopts two generations of a region, because a new fragment must not carry a deletion file.  (Lance names
that file by the fragment id, which is assigned at the commit.)

The files of a flush with several parts have rows of all parts.  They are adopted only if the merge takes every part,
each as the only generation of its region (``is_whole``).  For each part the region state read in this merge then
names this very flush, and no part is at or below the watermark.  Otherwise the files would add rows of a part that is
left out, or that was merged before, or that has another flush.  Rows of a part that is combined with a later
generation would be added twice.  In these cases the parts that are taken are combined.

Files are never adopted if their contract had a column of another type, or a struct member that was dropped since
(``RegionMerge.files_fit``).  If a whole column was dropped, the files keep its values, and the fragment no longer
names the column (``region_input``).

If a thousand regions each seal once a minute, adopting would make a thousand fragments a minute, one for each flush.
Every later merge would hide rows in all of them, and compaction would rewrite them.  Therefore, if there are many
flushes with few rows each, they are combined too: their rows are written together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lancewal_core.errors import InvalidSettings, StoreInconsistent
from lancewal_core.keys.conflicts import KEYS_MAX
from lancewal_core.names.ids import Region
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.region.state import GenerationRecord, GenerationState, RegionState
from lancewal_core.settings.sections import FlusherSettings
from lancewal_core.table.protocol import Fragment
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.tasks.cost import vector_bytes

_DEFAULTS = FlusherSettings()
_KEY_BYTES = 100
"""Bytes of memory for each changed key during the lookup: a short key, its code, its order, and the place of its
row."""
_DECODED = 3
"""Bytes that rows take in memory for each byte that they take in a file."""


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """Limits of one merge: numbers of rows or changed keys, and bytes of stored files unless a limit says otherwise."""

    adopt_rows: int = 50_000
    """A generation with at least this many rows is taken alone, and its files are adopted.  A smaller generation may
    be combined, even if no other generation of its region waits."""
    adopt_small_max: int = 16
    """Upper bound of the flushes with fewer than ``adopt_rows`` rows that one merge adopts.  If there are more, the
    smallest are combined.  Compaction rewrites the fragments of adopted ones together later."""
    combine_changes: int = 2_000_000
    """Largest number of changed keys that one merge combines of one region.  The oldest generation is taken whatever
    its size."""
    combine_bytes: int = 256 << 20
    """Largest number of bytes of generations that one merge combines, for all regions together, because combined rows
    are held in memory.  The oldest generation of a region is taken whatever its size."""

    memory_bytes: int = _DEFAULTS.merge_memory_bytes_max
    """Bytes that a merge may hold in memory, as the function ``memory_bytes`` estimates them.  Generations beyond
    that wait for the next merge."""

    defer_s: float = 0.0
    """Longest time in seconds that a merge waits for more generations, if it would write more bytes of deletion
    vectors than of rows."""

    in_place_rows: int = 1_000
    """Fewest patched rows of a fragment for which patching in place is considered.  To look into a fragment costs a
    request for each of its data files."""
    rewrite_bytes: int = 1 << 20
    """Smallest size in bytes of a fragment that compaction rewrites right after a merge.  A smaller fragment is not
    worth a table version of its own, however many of its rows are hidden.  Compaction takes it in its usual turn."""
    conflict_keys_max: int = KEYS_MAX
    """Largest number of keys in conflict that may wait for a person's decision.  A merge leaves out regions that would
    add more (``set_aside``)."""
    deleted_share: float = _DEFAULTS.compaction_deleted_ratio
    """Share of a fragment's rows, from 0 to 1.  If at least this share is hidden, compaction rewrites the fragment
    (``flusher.compaction_deleted_ratio``)."""

    def share(self, regions: int) -> MergeLimits:
        """Return the limits for one region, if ``regions`` regions share ``combine_bytes`` equally."""
        return replace(self, combine_bytes=self.combine_bytes // max(regions, 1))


@dataclass(frozen=True, slots=True)
class RegionMerge:
    """Consecutive generations of one region, oldest first, that one merge takes."""

    region: Region
    flushes: tuple[FlushedGeneration, ...]
    files_fit: bool = True
    """Whether the columns allow to adopt the files.  The contract then has every field of the flushes, but for fields
    of columns that were dropped as a whole."""

    @property
    def memory_bytes(self) -> int:
        """Estimated memory of the merge.  Files that cannot be adopted are read, so their rows count."""
        more = 0 if self.files_fit or len(self.flushes) > 1 or self.flushes[0].shared else self.flushes[0].rows_bytes
        return memory_bytes(self.flushes) + _DECODED * more


def waiting(state: RegionState, in_force: InForce) -> tuple[GenerationRecord, ...]:
    """Return the region's generations to merge: those above its watermark, oldest first, up to the first that is
    neither FLUSHED nor MERGED.

    Raises ``StoreInconsistent`` if ``state`` has a gap there.  The caller must have checked that ``state`` reaches
    the watermark (``check_reaches``).
    """
    merged = in_force.generation(state.region)
    position = in_force.position(state.region)
    found: list[GenerationRecord] = []
    for record in state.generations:
        if record.generation <= merged:
            continue
        expected = found[-1].next if found else position
        if record.generation != merged + 1 + len(found) or (expected is not None and record.first != expected):
            raise state.region.error(
                StoreInconsistent,
                f"generation {record.generation}, which begins at position {record.first}, does not follow generation "
                f"{merged + len(found)}, which ends at position {expected}",
            )
        if record.state not in (GenerationState.FLUSHED, GenerationState.MERGED):
            break
        found.append(record)
    return tuple(found)


def choose(region: Region, flushes: Sequence[FlushedGeneration], limits: MergeLimits) -> RegionMerge:
    """Choose how many of a region's flushes to merge: the oldest one, and those after it that fit the limits."""
    if flushes[0].rows >= limits.adopt_rows:
        return RegionMerge(region, (flushes[0],))
    taken = [flushes[0]]
    changes, nbytes = flushes[0].changes, flushes[0].nbytes
    for flushed in flushes[1:]:
        changes += flushed.changes
        nbytes += flushed.nbytes
        if flushed.rows >= limits.adopt_rows or changes > limits.combine_changes or nbytes > limits.combine_bytes:
            break
        if memory_bytes((*taken, flushed)) > limits.memory_bytes:
            break
        taken.append(flushed)
    return RegionMerge(region, tuple(taken))


def memory_bytes(flushes: Sequence[FlushedGeneration]) -> int:
    """Estimate the bytes of memory that a merge of these flushes of one region takes: for keys, and for the rows that
    it reads.

    A single generation that is adopted needs less than several that are combined.  A part of a shared flush counts as
    combined, because it is unknown here whether the merge takes all other parts.
    """
    read = [s.nbytes if len(flushes) > 1 or s.shared else s.nbytes - s.rows_bytes for s in flushes]
    return _KEY_BYTES * sum(s.changes for s in flushes) + _DECODED * sum(read)


def within_memory(
    merges: Sequence[RegionMerge], waited_s: Callable[[RegionMerge], float], limits: MergeLimits
) -> list[RegionMerge]:
    """Choose merges that fit into memory together, and return them in the given order.  Merges that have waited
    longest are chosen first.  ``merges`` has one for each region.  ``waited_s`` returns the seconds that a merge has
    waited.

    Raises ``InvalidSettings`` if none fits even alone, because it would never be merged.
    """
    needed = {merge.region: merge.memory_bytes for merge in merges}
    fitting = [merge for merge in merges if needed[merge.region] <= limits.memory_bytes]
    if merges and not fitting:
        region, first = merges[0].region, merges[0].flushes[0]
        raise region.error(
            InvalidSettings,
            f"merging generation {first.generation} with its {first.changes} changed keys takes about {needed[region]} "
            f"bytes, but flusher.merge_memory_bytes_max is {limits.memory_bytes}. Set it to {needed[region]} or more, and "
            "give the flusher that much more memory. A lower ingest.seal_rows makes later generations smaller",
        )
    left = limits.memory_bytes
    taken: set[Region] = set()
    for merge in sorted(fitting, key=waited_s, reverse=True):
        left -= needed[merge.region]
        if left < 0:
            break
        taken.add(merge.region)
    return [merge for merge in merges if merge.region in taken]


def adoptable(merges: Sequence[RegionMerge]) -> list[list[RegionMerge]]:
    """Group merges whose flush files may be adopted.  Each group has all parts of one flush."""
    flushes: dict[str, list[RegionMerge]] = {}
    for merge in merges:
        if len(merge.flushes) == 1 and merge.files_fit:
            flushes.setdefault(merge.flushes[0].key, []).append(merge)
    return [taken for taken in flushes.values() if is_whole([merge.flushes[0] for merge in taken])]


def is_whole(parts: Sequence[FlushedGeneration]) -> bool:
    """Whether these are all parts of one flush."""
    return len(parts) == parts[0].parts


def combined_regions(merges: Sequence[RegionMerge], limits: MergeLimits) -> frozenset[Region]:
    """Return the regions whose rows are written as new rows, instead of adopting their files.

    If more than ``adopt_small_max`` small flushes could be adopted, the smallest are combined too, as far as the
    limits in bytes allow.
    """
    whole = adoptable(merges)
    adopted = {merge.region for taken in whole for merge in taken}
    found = {merge.region for merge in merges if merge.region not in adopted}
    small = [taken for taken in whole if 0 < sum(m.flushes[0].rows for m in taken) < limits.adopt_rows]
    if len(small) <= limits.adopt_small_max:
        return frozenset(found)
    left = limits.combine_bytes - sum(s.nbytes for m in merges if m.region in found for s in m.flushes)
    spare = (limits.memory_bytes - sum(m.memory_bytes for m in merges)) // _DECODED
    for taken in sorted(small, key=_nbytes):
        left -= _nbytes(taken)
        spare -= 0 if taken[0].flushes[0].shared else _nbytes(taken)  # ``memory_bytes`` has that of shared ones
        if min(left, spare) < 0:
            break
        found |= {merge.region for merge in taken}
    return frozenset(found)


def _nbytes(merges: Sequence[RegionMerge]) -> int:
    return sum(merge.flushes[0].nbytes for merge in merges)


def unmerged(states: Mapping[Region, RegionState], in_force: InForce) -> dict[Region, tuple[GenerationRecord, ...]]:
    """Return the generations to merge by region (``waiting``), for regions that have any."""
    found = {region: waiting(state, in_force) for region, state in states.items()}
    return {region: records for region, records in found.items() if records}


def deletion_bytes(fragments: Sequence[Fragment], hidden: Mapping[int, int]) -> int:
    """Estimate the bytes of deletion vectors that a merge writes.  ``hidden``: the number of rows to hide, by fragment."""
    return sum(
        vector_bytes(f.physical_rows, f.deleted_rows + hidden[f.fragment_id])
        for f in fragments
        if f.fragment_id in hidden
    )
