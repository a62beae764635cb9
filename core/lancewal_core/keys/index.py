"""The key index: where the rows of given keys lie, without a scan of the table.

Guarantees
 1. ``find`` returns every physical row of the pinned version that has one of the keys, deleted ones too, or names its
    fragment as *uncovered*: such a fragment must be scanned (``live``).  No row is returned that has another key.
 2. Guarantee 1 holds for every version, also a restored one, and whatever is lost.  Runs describe data files, which
    never change.  ``find`` maps the files to the fragments of its version; a file may be in several fragments, or in
    none.
 3. Only parts whose span of numbers includes a key's number are read.

Steps of ``find``
 1. Find the file of each fragment that holds the key columns.  A fragment whose key columns lie in several files is
    uncovered.  The catalog of some seconds ago is enough if it covers all these files; otherwise the newest is read.
 2. Choose the run for each of these files: the first that covers it with as many rows as the fragment has.
 3. Look the keys up in the parts of these runs.  If a part is missing or damaged, all files of its run are uncovered.
    The run is then *broken*: this process never reads it again.
 4. Leave out entries of files that are in no fragment of this version, or for which another run counts.  The others
    become rows of fragments.

For each row found, ``find`` says through which partition its key came, as far as that is known and counts (``origin``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import Corrupt, ObjectCorrupt, or_corrupt
from lancewal_core.keys.catalog import CoveredFile, KeyCatalog, KeyCatalogs, KeyPart, KeyRun
from lancewal_core.keys.code import code_keys
from lancewal_core.keys.origin import NOT_KNOWN, Counts, Partitions
from lancewal_core.keys.parts import PartSource
from lancewal_core.keys.run import NO_REGION, FoundEntries, SoughtKeys, find_in_part
from lancewal_core.process.tasks import Tasks
from lancewal_core.table.protocol import Fragment, PinnedTable, key_file

Places = npt.NDArray[np.int64]
_SIDE_BY_SIDE_KEYS = 50_000
"""Number of keys below which one thread looks them up.  The steps are so short that several threads would wait for
each other."""
_FETCHED_ALONE = 2
"""Largest number of parts that one thread reads from the store one after the other.  More parts are read concurrently,
however few the keys."""


@dataclass(frozen=True, slots=True)
class RowsOfKeys:
    """Rows of one fragment that have one of the keys sought, as parallel arrays."""

    rows: Places
    """Physical rows."""
    places: Places
    """For each row, the index of its key in the keys sought."""
    partitions: Partitions | None = None
    """For each row, the partition through which its key came; None if the caller did not ask for them."""


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Result of ``find``.  ``uncovered``: ids of the fragments that must be scanned.  ``faults``: why the index does
    not cover files that it should."""

    covered: Mapping[int, RowsOfKeys]
    """Rows that were found, by fragment id; a fragment without such a row is left out."""
    uncovered: tuple[int, ...]
    faults: tuple[str, ...] = ()


@dataclass(slots=True)
class KeyIndex:
    """Key index of a table.  ``broken`` has the names of runs with a part that could not be read, and the reasons."""

    catalogs: KeyCatalogs
    parts: PartSource
    tasks: Tasks | None = None
    """Tasks that look keys up in parts concurrently, if there are enough keys or parts.  With None, parts are read
    one after the other."""
    broken: dict[str, str] = field(default_factory=dict)

    def find(self, pinned: PinnedTable, keys: pa.Table, counts: Counts | None = None) -> KeyRows:
        """Return the rows of ``pinned`` whose key is in ``keys``.  ``RowsOfKeys.places`` are row numbers in ``keys``.

        With ``counts`` (see ``origin``), the partitions of the keys are returned too.
        """
        # Step 1
        fragments = fragments_by_file(pinned, keys.column_names)
        catalog = self.catalogs.recent()
        if fragments.keys() - covered_files(self.sound(catalog), fragments):
            catalog = self.catalogs.read()  # another process may have written runs since
        # Step 2
        counting = _counting(self.sound(catalog), fragments)
        if not counting:
            return KeyRows({}, tuple(f.fragment_id for f in pinned.fragments()), self._faults(catalog))
        # Step 3
        sought = SoughtKeys(code_keys(keys))
        found: dict[int, list[RowsOfKeys]] = {}
        covered: set[int] = set()
        found_in = find_in_runs([run for run, _ in counting], self.parts, sought, self.tasks)
        for (run, files), entries in zip(counting, found_in, strict=True):
            if isinstance(entries, Corrupt):
                self.broken[run.name] = str(entries)
                continue
            # Step 4
            for at in files:
                covered.update(f.fragment_id for f in fragments[run.files[at].name])
            _collect(run, files, entries, fragments, counts, found)
        rows = {fragment_id: _joined(parts) for fragment_id, parts in found.items()}
        left = tuple(f.fragment_id for f in pinned.fragments() if f.fragment_id not in covered)
        return KeyRows(rows, left, self._faults(catalog))

    def bring(self, keys: pa.Table) -> None:
        """Read in advance the recent catalog, and the parts of its runs that ``find`` will read for these keys."""
        sought = SoughtKeys(code_keys(keys))
        runs = self.sound(self.catalogs.recent())
        find_in_runs(runs, self.parts, sought, self.tasks)

    def covers_all(self, pinned: PinnedTable, names: Sequence[str], *, local: bool) -> bool:
        """Return whether ``find`` would need neither a scan nor a request for this version.

        With ``local``, parts are local files and need not be open, and the catalog may be read.  Otherwise the
        catalog is the one that was read last, without a request.
        """
        fragments = fragments_by_file(pinned, names)
        counting = _counting(self.sound(self.catalogs.recent() if local else self.catalogs.last()), fragments)
        covered = {f.fragment_id for run, files in counting for at in files for f in fragments[run.files[at].name]}
        at_hand = local or all(self.parts.at_hand(part) for run, _ in counting for part in run.parts)
        return at_hand and all(f.fragment_id in covered for f in pinned.fragments())

    def sound(self, catalog: KeyCatalog) -> list[KeyRun]:
        """Return the runs of a catalog that can be read as far as this process knows: those not in ``broken``."""
        return [run for run in catalog.runs if run.name not in self.broken]

    def _faults(self, catalog: KeyCatalog) -> tuple[str, ...]:
        faults = [self.broken[run.name] for run in catalog.runs if run.name in self.broken]
        return (*(() if self.catalogs.problem is None else (str(self.catalogs.problem),)), *faults)


def fragments_by_file(pinned: PinnedTable, names: Sequence[str]) -> dict[str, list[Fragment]]:
    """Return the fragments of each data file that has all columns ``names`` of these fragments."""
    ids = [i for name in names for i in pinned.field_ids[name]]
    found: dict[str, list[Fragment]] = {}
    for fragment in pinned.fragments():
        file = key_file(fragment, ids)
        if file is not None:
            found.setdefault(file, []).append(fragment)
    return found


def covers(file: CoveredFile, fragments: Mapping[str, Sequence[Fragment]]) -> bool:
    """Return whether ``file`` is in use, and all its fragments have exactly as many rows as the run covers."""
    return file.name in fragments and all(f.physical_rows == file.rows for f in fragments[file.name])


def covered_files(runs: Sequence[KeyRun], fragments: Mapping[str, Sequence[Fragment]]) -> set[str]:
    """Return the names of the files in use that one of the runs covers."""
    return {file.name for run in runs for file in run.files if covers(file, fragments)}


def _counting(runs: Sequence[KeyRun], fragments: Mapping[str, Sequence[Fragment]]) -> list[tuple[KeyRun, list[int]]]:
    """Return the runs to read, each with the files to use it for, as indexes into the run's list of files.  For each
    file the first run that covers it is used."""
    seen: set[str] = set()
    found: list[tuple[KeyRun, list[int]]] = []
    for run in runs:
        files = [at for at, file in enumerate(run.files) if file.name not in seen and covers(file, fragments)]
        if files:
            found.append((run, files))
            seen.update(run.files[at].name for at in files)
    return found


def find_in_runs(
    runs: Sequence[KeyRun], source: PartSource, sought: SoughtKeys, tasks: Tasks | None = None
) -> list[FoundEntries | Corrupt]:
    """Return for each run all entries of the keys sought; if one of its parts cannot be read, the error instead."""

    def look(part: KeyPart) -> FoundEntries | Corrupt:
        return or_corrupt(lambda: find_in_part(source.open(part), sought))

    asked = {part.object: part for run in runs for part in run.parts if sought.any_in(part.first, part.last)}
    parts = list(asked.values())
    many = len(sought.places) >= _SIDE_BY_SIDE_KEYS or sum(not source.at_hand(part) for part in parts) > _FETCHED_ALONE
    found = tasks.map(look, parts) if tasks is not None and many else [look(part) for part in parts]
    by_part = dict(zip(asked, found, strict=True))
    return [_of_run(run, [by_part[part.object] for part in run.parts if part.object in asked]) for run in runs]


def _of_run(run: KeyRun, parts: Sequence[FoundEntries | Corrupt]) -> FoundEntries | Corrupt:
    """Return the entries that a run has in all its parts, joined; if a part cannot be read, the first error instead."""
    nothing = np.zeros(0, np.uint32)
    found = [FoundEntries(np.zeros(0, np.int64), nothing, nothing, np.zeros(0, np.int32))]
    for part in parts:
        if isinstance(part, Corrupt):
            return part
        found.append(part)
    joined = FoundEntries(
        np.concatenate([f.places for f in found]),
        np.concatenate([f.files for f in found]),
        np.concatenate([f.rows for f in found]),
        np.concatenate([f.regions for f in found]),
    )
    rows = np.array([file.rows for file in run.files], np.int64)
    if (joined.files >= len(rows)).any() or (joined.rows >= rows[joined.files]).any():
        return ObjectCorrupt(f"key run {run.name} names rows that its files do not have")
    if (joined.regions < NO_REGION).any() or (joined.regions >= len(run.regions)).any():
        return ObjectCorrupt(f"key run {run.name} names regions that it does not list")
    return joined


def _collect(
    run: KeyRun,
    files: Sequence[int],
    entries: FoundEntries,
    fragments: Mapping[str, Sequence[Fragment]],
    counts: Counts | None,
    found: dict[int, list[RowsOfKeys]],
) -> None:
    """Add to ``found`` the entries of a run as rows of fragments.  ``files``: indexes of the run's files to use."""
    partitions: Partitions | None = None
    if counts is not None:
        # The last one stands for the place -1.
        partitions = np.array([*map(counts, run.merged_from), NOT_KNOWN], np.int32)[entries.regions]
    # numpy sorts 16 bits by radix.
    narrow = entries.files.astype(np.uint16) if len(run.files) < 1 << 16 else entries.files
    order = np.argsort(narrow, kind="stable")
    sorted_files = narrow[order]
    starts = np.searchsorted(sorted_files, files, side="left").tolist()
    ends = np.searchsorted(sorted_files, files, side="right").tolist()
    for at, start, end in zip(files, starts, ends, strict=True):
        if start < end:
            chosen = order[start:end]
            rows = RowsOfKeys(
                entries.rows[chosen].astype(np.int64),
                entries.places[chosen],
                None if partitions is None else partitions[chosen],
            )
            for fragment in fragments[run.files[at].name]:
                found.setdefault(fragment.fragment_id, []).append(rows)


def _joined(parts: Sequence[RowsOfKeys]) -> RowsOfKeys:
    if len(parts) == 1:
        return parts[0]
    asked = [p.partitions for p in parts if p.partitions is not None]
    return RowsOfKeys(
        np.concatenate([p.rows for p in parts]),
        np.concatenate([p.places for p in parts]),
        np.concatenate(asked) if asked else None,
    )
