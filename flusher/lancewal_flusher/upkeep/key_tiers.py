"""Choose key runs that are to be merged, a pure decision, and merge them in bounded memory.

A lookup asks every run, and merging runs writes their entries again.  Runs are merged when there are ``FAN_IN`` of
about the same size.  An entry is then written again each time the index has grown by that factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lancewal_core.keys.catalog import CoveredFile, KeyPart, KeyRun, RunRegion
from lancewal_core.keys.origin import Counts, RegionList
from lancewal_core.keys.parts import PartSource
from lancewal_core.keys.run import PART_ENTRIES, Entries, cut, join_entries

FAN_IN = 8
SMALLEST = 8_192
"""Runs with at most this many entries count as runs of the same size."""


@dataclass(frozen=True, slots=True)
class RunInUse:
    """A key run, and those of its files that the table still has."""

    run: KeyRun
    files: tuple[CoveredFile, ...]

    @property
    def entries(self) -> int:
        """Number of entries of files that the table still has."""
        return sum(file.rows for file in self.files)


def to_merge(runs: Sequence[RunInUse]) -> list[list[RunInUse]]:
    """Return groups of runs to merge; each group becomes one run.

    A run is a group by itself if more than half of its entries are of files that the table no longer has.
    """
    sizes: dict[int, list[RunInUse]] = {}
    for run in runs:
        sizes.setdefault(_size(run.entries), []).append(run)
    groups = []
    for _, group in sorted(sizes.items()):
        if len(group) >= FAN_IN:
            groups.append(group)
        else:
            groups += [[run] for run in group if 2 * run.entries < run.run.entries]
    return groups


def _size(entries: int) -> int:
    size = 0
    while entries > SMALLEST:
        entries //= FAN_IN
        size += 1
    return size


def merge_runs(
    group: Sequence[RunInUse], source: PartSource, write: Callable[[Entries], KeyPart], name: str, counts: Counts
) -> KeyRun:
    """Write and return one run with the entries of those files of the group that the table still has.  At most one
    part of each run is held at a time.

    ``write`` stores a part.  Raises ``ObjectMissing`` or ``ObjectCorrupt`` if a part cannot be read.
    """
    files: dict[str, CoveredFile] = {}
    places: list[np.ndarray] = []
    for member in group:
        mine = {f.name for f in member.files} - files.keys()  # a file that two runs cover is taken once
        files.update({f.name: f for f in member.files if f.name in mine})
        order = {file: at for at, file in enumerate(files)}
        places.append(np.array([order[f.name] if f.name in mine else -1 for f in member.run.files], np.int64))
    regions = RegionList(counts)
    moved = [regions.places(member.run.merged_from) for member in group]
    parts: list[KeyPart] = []
    pending: Entries | None = None
    for entries in _ascending(group, places, moved, source):
        pending = entries if pending is None else join_entries([pending, entries])  # it lies wholly above
        if len(pending) >= 2 * PART_ENTRIES:
            *full, pending = cut(pending)
            parts += [write(part) for part in full]
    if pending is not None:
        parts += [write(part) for part in cut(pending)]
    return KeyRun(name=name, files=tuple(files.values()), parts=tuple(parts), regions=run_regions(regions))


def run_regions(regions: RegionList) -> tuple[RunRegion, ...]:
    """Return the regions of the list in the form that a key run records."""
    return tuple(RunRegion(name=found.region.name, position=found.position) for found in regions.regions)


def _ascending(
    group: Sequence[RunInUse], places: Sequence[np.ndarray], regions: Sequence[np.ndarray], source: PartSource
) -> Iterator[Entries]:
    """Yield all entries of files in use, in ascending order of the keys' numbers, one span of numbers at a time.  A
    span begins where a part of a run begins.
    """
    begins = sorted({part.first for member in group for part in member.run.parts})
    for begin, end in zip(begins, [*begins[1:], None], strict=True):
        found = []
        for member, place, region in zip(group, places, regions, strict=True):
            for part in member.run.parts:
                if part.last < begin or (end is not None and part.first >= end):
                    continue
                entries = source.open(part)
                numbers = entries.keys.numbers
                low = int(np.searchsorted(numbers, begin))
                high = len(numbers) if end is None else int(np.searchsorted(numbers, end))
                chosen = entries.slice(low, high)
                moved = place[chosen.files]
                wanted = moved >= 0
                renamed = None if chosen.regions is None else region[chosen.regions]
                files = np.maximum(moved, 0).astype(np.uint32)
                found.append(Entries(chosen.keys, chosen.rows, files, renamed).kept(wanted))
        joined = join_entries(found)
        if len(joined):
            yield joined


def in_use(run: KeyRun, rows_of_files: Mapping[str, int]) -> RunInUse:
    """Return the run, with those of its files that the table still has.  ``rows_of_files``: the physical rows of each
    data file of the table.
    """
    return RunInUse(run, tuple(f for f in run.files if rows_of_files.get(f.name) == f.rows))
