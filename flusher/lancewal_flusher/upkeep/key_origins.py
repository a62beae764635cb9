"""Through which regions the keys of files came that get a key run: of tables whose rows do not tell it (``keys.origin``).

Steps of ``find``, for one file
 1. The commit that brought it says so (``commit.row_origins``).
 2. Nothing does: a compaction, a load or a user wrote it.  Then a key's region is the one that counts in the entries that
    the index has of this key, whichever files these are of; where they name two, or none, it is not known.

Step 2 finds what a compaction moved only while the runs of the files before it are in the catalog: ``key_runs`` leaves them
there until it has written runs for all files.  And it is right of a key that had two regions, one after the other, only if
both are there: a compaction leaves files alone that have no run yet (``origin_only_in_commits``), and where the index begins
anew, files of step 2 get their runs first, so that nothing is concluded from half of what there was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lancewal_core.errors import Corrupt
from lancewal_core.keys.catalog import KeyRun
from lancewal_core.keys.code import CodedKeys
from lancewal_core.keys.index import covered_files, find_in_run, fragments_by_file
from lancewal_core.keys.origin import NOT_KNOWN, RegionList, counting
from lancewal_core.keys.run import NO_REGION, Regions, SoughtKeys
from lancewal_core.table.protocol import Fragment, PinnedTable
from lancewal_flusher.commit.row_origins import Spans, expanded, find_spans
from lancewal_flusher.context import FlusherContext

_ANY = np.iinfo(np.int32).max


class EntryRegions:
    """Of the files of one ``keep_up``; ``runs`` are those that can be read."""

    def __init__(
        self, context: FlusherContext, pinned: PinnedTable, files: Mapping[str, Fragment], runs: Sequence[KeyRun]
    ) -> None:
        self.regions = RegionList(counting(context.contract))
        """What ``find`` gives places of."""
        self._context = context
        self._runs = [run for run in runs if run.regions]
        asked = context.contract.keyed_by_bytes and files
        ids = {name: fragment.fragment_id for name, fragment in files.items()}
        self._told: Mapping[str, Spans] = find_spans(context, pinned, ids) if asked else {}

    def in_order(self, files: Mapping[str, Fragment]) -> Mapping[str, Fragment]:
        """Those of step 2 first."""
        return dict(sorted(files.items(), key=lambda item: item[0] in self._told)) if self._told else files

    def find(self, name: str, keys: CodedKeys) -> Regions | None:
        """Places in ``regions``, or ``NO_REGION``, of a file's rows; None where rows tell their region themselves."""
        if not self._context.contract.keyed_by_bytes:
            return None
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


def origin_only_in_commits(context: FlusherContext, pinned: PinnedTable) -> frozenset[int]:
    """Fragments of which a commit says through which regions their rows came, and no run yet."""
    if not context.contract.keyed_by_bytes:
        return frozenset()
    fragments = fragments_by_file(pinned, context.contract.primary_key)
    indexed = covered_files(context.keys.sound(context.keys.catalogs.read()), fragments)
    ids = {name: found[0].fragment_id for name, found in fragments.items() if name not in indexed}
    told = find_spans(context, pinned, ids) if ids else {}
    return frozenset(fragment.fragment_id for name in told for fragment in fragments[name])
