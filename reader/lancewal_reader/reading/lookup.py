"""Lookups: the rows of given primary keys, and the number of rows, without a scan of what the key index covers.

Guarantees
 1. ``lookup_plan`` gives exactly those rows of the plan (``scan``) whose key is among the keys, in the order of the
    keys.
 2. ``count_plan`` is the number of rows that ``scan`` gives.
 3. ``deltas_of`` leaves out only deltas that cannot hold a record of a region key.  All their records came through
    another partition than the key's, after the last change of the number of partitions.

Steps of 1
 0. If the store is remote, fetch the key index's catalog, and its parts that may hold the keys, while the plan is
    made.  Errors of this step are ignored, since step 2 fetches what is missing.
 1. Fold the plan's unmerged rows as for a scan.  A key with unmerged records is answered from these, with no row if
    it was deleted.  The table only supplies columns that patches do not set.
 2. Look up all other keys in the key index that the flusher maintains.  The index names rows of the pinned version,
    and fragments that it does not cover, which are scanned.  Rows that a deletion vector hides are left out.
 3. Take the rows by their address.

If step 1 has something to read, and the keys are few, steps 2 and 3 run for all keys at the same time.  Rows of keys
that step 1 answers are then dropped.

Rounds of requests for one lookup, as counted: 6 ("one key of an open table, nothing read before").
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import LancewalError
from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.live import find_live
from lancewal_core.keys.parts import MappedParts
from lancewal_core.process.tasks import together
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.fold import states_at
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.projection import project
from lancewal_core.store.address import local_folder
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import PinnedTable
from lancewal_reader.plan.strong import RegionDelta
from lancewal_reader.reading.scan import OpenState, delta_keys, result_schema
from lancewal_reader.unmerged.completed import complete_rows

_PARTS_BYTES_MAX = 4 << 30
"""Largest number of bytes of key index files that are kept mapped.  Files of a remote store are copied to a temporary
folder."""
_BESIDE_KEYS_MAX = 1_000
"""Largest number of keys that are looked up at the same time as the unmerged rows are folded.  Their rows are read in
vain if the keys turn out to be unmerged."""
T = TypeVar("T")


class KeyLookup:
    """The key index of an open table, opened at its first use.

    Threads may share it.  A thread waits for another thread's request only if both need the same part, which is fetched
    once.
    """

    def __init__(self, opened: OpenedTable, uri: str) -> None:
        self._opened = opened
        self._uri = uri
        self._index: KeyIndex | None = None
        self._awaited = False
        """Whether ``at_hand`` was called before."""
        self._lock = Lock()

    def addresses(self, pinned: PinnedTable, keys: pa.Table) -> npt.NDArray[np.uint64]:
        """Return the addresses of the live rows with these keys, in any order.  Only fragments that the index does not
        cover are scanned.
        """
        if not keys.num_rows:
            return np.zeros(0, np.uint64)
        found = self._asked().find(pinned, keys)
        live = find_live(pinned, KeySet(keys), found)
        parts = [np.uint64(fragment << 32) | rows.rows.astype(np.uint64) for fragment, rows in live.items()]
        return np.concatenate([np.zeros(0, np.uint64), *parts])

    def beside(self, plan: Callable[[], T], keys: pa.Table) -> T:
        """Return the result of ``plan``.  If the store is remote, fetch at the same time what a lookup of these keys
        will need.
        """
        if local_folder(self._uri) is not None:
            return plan()
        return together(self._opened.tasks, plan, lambda: self._bring(keys))[0]

    def _bring(self, keys: pa.Table) -> None:
        with suppress(LancewalError):  # who needs it asks again
            self._asked().bring(keys)

    def at_hand(self, pinned: PinnedTable, names: Sequence[str]) -> bool:
        """Return whether rows of this version can be found without a scan and without a request.

        ``names``: the key columns.  While the index is not open, the first call returns False, because opening the
        index takes longer than one scan.  With a remote store every call returns False until keys have been looked
        up.
        """
        local = local_folder(self._uri) is not None
        with self._lock:
            first, self._awaited = not self._awaited, True
            known = self._index is not None
        if not known and (first or not local):
            return False
        return self._asked().covers_all(pinned, names, local=local)

    def _asked(self) -> KeyIndex:
        with self._lock:
            if self._index is None:
                self._index = self._made()
            return self._index

    def _made(self) -> KeyIndex:
        opened, root = self._opened, local_folder(self._uri)
        folder = root
        if folder is None:
            try:
                folder = Path(tempfile.mkdtemp(prefix=f"lancewal-lookup-{os.getpid()}-"))
                weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            except OSError:  # no folder is writable, as in a container with a read-only file system
                folder = Path(os.devnull)  # holds no part: each is read from memory
        parts = MappedParts(opened.store, root, folder, _PARTS_BYTES_MAX)
        return KeyIndex(KeyCatalogs(opened.store, opened.clock, opened.contract.making), parts, opened.tasks)


def lookup_plan(state: OpenState, columns: Sequence[str], keys: pa.Table) -> pa.Table:
    """Return the plan's rows with these keys, in the order of the keys.  ``keys`` must be distinct, in the columns of
    the primary key.
    """
    context, pinned, find = state.context, state.pinned, state.find
    whole = context.rows
    names = list(whole.primary_key)
    projected, sought = project(whole, columns), KeySet(keys)

    def merged(keys: pa.Table) -> pa.Table:
        """Read the merged rows of these keys (steps 2 and 3 of the module docstring)."""
        addresses = find(pinned, keys)
        if not len(addresses):
            return projected.table.empty_table()
        return pinned.take(pa.array(addresses), projected.table.names).cast(projected.table)

    if not state.plan.has_delta:
        rows = merged(keys)
    else:
        base = None
        few = keys.num_rows <= _BESIDE_KEYS_MAX
        known = context.loaded.get(state.plan.deltas, projected.signature, state.plan.in_force.conflicts)
        if few and known is None:
            loaded, base = together(context.tasks, lambda: state.load(projected), lambda: merged(keys))
        else:
            loaded = state.load(projected)
        places = loaded.mask.places([keys[name] for name in names])
        here = complete_rows(states_at(loaded.folded, places[places >= 0]), pinned, projected, find)
        if base is None:
            base = merged(keys.filter(pa.array(places < 0)))
        else:
            base = base.filter(pa.array(~loaded.mask.contains([base[name] for name in names])))
        rows = pa.concat_tables([base, here.cast(projected.table)])
    order = np.argsort(sought.places([rows[name] for name in names]), kind="stable")
    return rows.take(pa.array(order)).select(list(columns)).cast(result_schema(whole, columns))


def count_plan(state: OpenState) -> int:
    """Return the number of rows of the state: merged rows whose keys have no unmerged records, plus unmerged rows."""
    merged = sum(fragment.live_rows for fragment in state.pinned.fragments())
    if not state.plan.has_delta:
        return merged
    loaded = delta_keys(state.context, state.plan)
    superseded = len(state.hidden(loaded.mask))
    # A Partial is a row, whether it finds one in the table or not.
    unmerged = int(loaded.folded.rows.num_rows + loaded.folded.partials.num_rows)
    return merged - superseded + unmerged


def deltas_of(contract: Contract, deltas: Sequence[RegionDelta], partition: int) -> tuple[RegionDelta, ...]:
    """Return the deltas that may hold records of this partition (guarantee 3 of the module docstring)."""
    altered = contract.altered_at

    def may(delta: RegionDelta) -> bool:
        region = delta.region
        other_number = region.partition < len(altered) and delta.start < altered[region.partition]
        return region.partition == partition or other_number or region.topic_id != contract.topic_id

    return tuple(delta for delta in deltas if may(delta))
