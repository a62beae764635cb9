"""Record and look up the regions through which keys came, as the contract's ``key_format`` wants it.

``canonical``: a key tells its region itself, so nothing is recorded and nothing asked (``Origins``).  ``format.key:
bytes`` (``RecordedOrigins``): each commit says through which regions its rows came, and so do entries of the key
index.

Steps of ``RecordedOrigins.find``, for one file that gets a key run
 1. The commit that brought the file says so (``commit.row_origins``).
 2. No commit does: a compaction, a load or a user wrote the file.  Then a key's region is the one that counts in the
    entries that the index has of this key, whichever files these entries are of.  If they name two regions, or none,
    the region is unknown.

Step 2 finds what a compaction moved only while the runs of the earlier files are in the catalog.  ``key_runs`` leaves
them there until it has written runs for all files.

If a key had two regions, one after the other, step 2 is right only if the index has both.  A compaction therefore
leaves files alone that have no run yet (``only_in_commits``).  When the index is begun again, files of step 2 get
their runs first.  Nothing is then concluded from half of what there was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lancewal_core.errors import Corrupt
from lancewal_core.keys.catalog import KeyRun
from lancewal_core.keys.code import CodedKeys
from lancewal_core.keys.index import covered_files, find_in_run, fragments_by_file
from lancewal_core.keys.origin import NOT_KNOWN, RegionList, counting
from lancewal_core.keys.run import NO_REGION, Regions, SoughtKeys
from lancewal_core.table.protocol import Fragment, PinnedTable
from lancewal_flusher.commit.row_origins import Spans, expanded, find_spans, region_properties
from lancewal_flusher.context import FlusherContext, check_contract

Files = Mapping[str, Fragment]
_ANY = np.iinfo(np.int32).max


def origins_of(context: FlusherContext) -> Origins:
    """Return the rule of the contract's ``key_format``; one object for each ``keep_up``."""
    return {"canonical": Origins, "bytes": RecordedOrigins}[context.contract.key_format](context)


class Origins:
    """Nothing is recorded, and nothing asked."""

    in_old_runs = False
    """Whether runs out of use may be all that knows through which regions keys came."""

    def __init__(self, context: FlusherContext) -> None:
        self.regions = RegionList(counting(context.contract))
        """Regions that ``find`` gives places of."""
        self._context = context

    def properties(self, files: Callable[[], Mapping[str, Spans]]) -> dict[str, str]:
        """Return what a commit says of its new files; ``files`` is called only if the commit says anything."""
        return {}

    def only_in_commits(self, pinned: PinnedTable) -> frozenset[int]:
        """Fragments of which a commit says through which regions their rows came, and no run yet."""
        return frozenset()

    def check(self) -> None:
        """Raise ``ContractMismatch`` if it is no longer known which regions count."""

    def begin(self, pinned: PinnedTable, files: Files, runs: Sequence[KeyRun]) -> Files:
        """Return the files in the order in which ``find`` must be asked about them; ``runs`` are those that can be read."""
        return files

    def find(self, name: str, keys: CodedKeys) -> Regions | None:
        """Return places in ``regions``, or ``NO_REGION``, of a file's rows; None if keys tell their region themselves."""
        return None


class RecordedOrigins(Origins):
    """See the module docstring."""

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
        # Those of step 2 first.
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
            try:
                found = find_in_run(run, self._context.keys.parts, sought)
            except Corrupt as error:
                self._context.keys.broken[run.name] = str(error)
                continue
            sources = run.merged_from
            counts = [self.regions.counts(source) != NOT_KNOWN for source in sources]
            known = np.where(np.array([*counts, False]), self.regions.places(sources), NO_REGION)[found.regions]
            at = np.flatnonzero(known != NO_REGION)
            np.minimum.at(lowest, found.places[at], known[at])
            np.maximum.at(highest, found.places[at], known[at])
        return np.where(lowest == highest, highest, NO_REGION).astype(np.int32)
