"""Record and look up the regions through which keys came, if the rows of the table do not tell them.

If a row tells its partition, nothing is recorded or looked up (``Origins``).  Otherwise (``RecordedOrigins``) each
commit says through which regions its rows came, and so do entries of the key index.

Steps of ``RecordedOrigins.find``, for one file that gets a key run
 1. Take the regions from the record of the commit that added the file (``commit.row_origins``).
 2. If no commit names them, a compaction, a load or a user wrote the file.  Then look up each key in the key index.
    Use all its entries, for rows of any file, whose regions count (``keys.origin``).  If the entries name two
    regions, or none, the region is unknown.

For rows that a compaction moved, step 2 needs the key runs of the files before the compaction.  ``key_runs`` keeps
these runs in the key catalog until it has written runs for all files.

If a key had two regions, one after the other, step 2 is right only if the index has entries of both.  Therefore
compaction does not rewrite files that have no run yet (``only_in_commits``).  When the index is built from nothing,
files of step 2 get their runs first.  So no region is concluded from a part of a key's entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lancewal_core.errors import Corrupt
from lancewal_core.keys.catalog import KeyRun
from lancewal_core.keys.code import CodedKeys
from lancewal_core.keys.index import covered_files, find_in_runs, fragments_by_file
from lancewal_core.keys.origin import NOT_KNOWN, RegionList, counting
from lancewal_core.keys.run import NO_REGION, Regions, SoughtKeys
from lancewal_core.table.protocol import Fragment, PinnedTable
from lancewal_flusher.commit.row_origins import Spans, expanded, find_spans, region_properties
from lancewal_flusher.context import FlusherContext, check_contract

Files = Mapping[str, Fragment]
_ANY = np.iinfo(np.int32).max


def origins_of(context: FlusherContext) -> Origins:
    """Return the kind of ``Origins`` that the contract requires.  Each call of ``key_runs.keep_up`` needs a new
    object.
    """
    return Origins(context) if context.contract.rows_tell_partition else RecordedOrigins(context)


class Origins:
    """Regions of rows, for a table whose keys determine the region.  Nothing needs to be recorded or looked up."""

    in_old_runs = False
    """Whether key runs of files that the table no longer has may be the only record of the regions of keys."""

    def __init__(self, context: FlusherContext) -> None:
        self.regions = RegionList(counting(context.contract))
        """Regions found so far; ``find`` returns indexes into this list."""
        self._context = context

    def properties(self, files: Callable[[], Mapping[str, Spans]]) -> dict[str, str]:
        """Return the transaction properties that record the regions of a commit's new files.  ``files`` returns the
        spans of each file; it is called only if regions are recorded."""
        return {}

    def only_in_commits(self, pinned: PinnedTable) -> frozenset[int]:
        """Return the ids of fragments whose rows' regions only a commit records, because no key run covers the
        fragments yet.
        """
        return frozenset()

    def check(self) -> None:
        """Raise ``ContractMismatch`` if a newer contract may change which regions a key can have."""

    def begin(self, pinned: PinnedTable, files: Files, runs: Sequence[KeyRun]) -> Files:
        """Prepare to look up the regions of these files' rows.  Return the files in the order in which ``find`` must
        be called.  ``runs``: the key runs that can be read.
        """
        return files

    def find(self, name: str, keys: CodedKeys) -> Regions | None:
        """Return for each row of a file the index of its region in ``regions``, or ``NO_REGION`` if it is unknown.
        None if keys determine their region.
        """
        return None


class RecordedOrigins(Origins):
    """Regions of rows, for a table whose rows do not tell their partition.  They are read from key runs and commits."""

    in_old_runs = True

    def properties(self, files: Callable[[], Mapping[str, Spans]]) -> dict[str, str]:
        return region_properties(files())

    def only_in_commits(self, pinned: PinnedTable) -> frozenset[int]:
        keys = self._context.keys
        fragments = fragments_by_file(pinned, self._context.contract.primary_key)
        indexed = covered_files(keys.sound(keys.catalogs.read()), fragments)
        ids = {name: found[0].fragment_id for name, found in fragments.items() if name not in indexed}
        told = find_spans(self._context, pinned, ids)
        return frozenset(fragment.fragment_id for name in told for fragment in fragments[name])

    def check(self) -> None:
        check_contract(self._context)

    def begin(self, pinned: PinnedTable, files: Files, runs: Sequence[KeyRun]) -> Files:
        self._runs = [run for run in runs if run.regions]
        ids = {name: fragment.fragment_id for name, fragment in files.items()}
        self._told: Mapping[str, Spans] = find_spans(self._context, pinned, ids)
        # Files of step 2 come first.
        return dict(sorted(files.items(), key=lambda item: item[0] in self._told))

    def find(self, name: str, keys: CodedKeys) -> Regions | None:
        # Step 1
        spans = self._told.get(name, ())
        told = expanded(spans, {region: self.regions.place(region) for region, _ in spans}, len(keys))
        # Step 2
        return self._by_keys(keys) if told is None else told

    def _by_keys(self, keys: CodedKeys) -> Regions:
        lowest = np.full(len(keys), _ANY, np.int32)
        highest = np.full(len(keys), NO_REGION, np.int32)
        sought = SoughtKeys(keys)
        for run in self._runs:
            (found,) = find_in_runs([run], self._context.keys.parts, sought)  # many runs may have each of the keys
            if isinstance(found, Corrupt):
                self._context.keys.broken[run.name] = str(found)
                continue
            sources = run.merged_from
            counts = [self.regions.counts(source) != NOT_KNOWN for source in sources]
            known = np.where(np.array([*counts, False]), self.regions.places(sources), NO_REGION)[found.regions]
            at = np.flatnonzero(known != NO_REGION)
            np.minimum.at(lowest, found.places[at], known[at])
            np.maximum.at(highest, found.places[at], known[at])
        return np.where(lowest == highest, highest, NO_REGION).astype(np.int32)
