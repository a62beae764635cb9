"""Indexes of a reader's own over many unmerged vectors of floats, in its scratch folder.

Guarantees
 1. Nothing is written elsewhere; nothing at all where no scratch folder is given.  No more than ``bytes_max`` by one open
    table: what would be larger is not made, nor what the folder has no room for; then all rows are compared as ever.
 2. A view chooses candidates, no more: rows of the state that it does not hold are compared one by one, and what it holds that
    is no row of the state, or does not pass the filter, is hidden from it before anything is ranked.  Distances are computed
    from the state's own vectors.  So a view cannot show what is out of date, whatever it holds.
 3. A view is carried on: rows that came since are added to it as a further segment.  It is made anew when more than half of
    what it holds is of no state any more.
 4. One that somebody has removed, as those do who clean up scratch folders, is not added to, but made anew.
 5. It is removed once the open table is let go of, and when the process ends.  A process that was killed leaves its folder;
    the next view that is made in the same scratch folder removes it, as the lock of such a folder is free.

A view is made once searches have compared ``PAYS_AFTER`` times as many rows as it takes in: making it costs about as much as
these comparisons did, so that of two costs the larger is never paid more than twice.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_reader.search.options import Metric, Vectors
from lancewal_reader.search.texts.indexed_texts import ROW_ID, mask_of

ROWS_MIN = 100_000
"""Fewer are compared in less than 25 ms of CPU."""
PAYS_AFTER = 250
ROWS_EACH = 1_000
"""Of a partition; 20 of them are looked through."""
PROBES = 20
_OVERHEAD = 3
"""Bytes of a view by those of its vectors: rows, index, and files that Lance writes on the way."""
_NAME = "lancewal-view-"
_COLUMN = "vector"
Float32s = npt.NDArray[np.float32]
Hashes = npt.NDArray[np.uint64]
Addresses = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


class Folder:
    """A locked folder below a scratch folder; dead ones beside it are removed.  ``OSError``."""

    def __init__(self, scratch: Path) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        for dead in _dead(scratch):
            shutil.rmtree(dead, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix=_NAME, dir=scratch))
        lock = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def remove(self) -> None:
        self._remove()


def _remove(path: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # not a child that has it by a fork
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _dead(scratch: Path) -> Iterator[Path]:
    """Folders of processes that are gone: their locks are free.  One that is just being made is empty, and is left."""
    for folder in scratch.glob(f"{_NAME}*"):
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if any(folder.iterdir()):
                    yield folder
            finally:
                os.close(lock)


@dataclass(frozen=True, slots=True)
class Content:
    """What a view holds at some moment, which never changes: some vectors, each once, by their hashes."""

    dataset: Any
    hashes: Hashes
    addresses: Addresses

    def nearest(self, query: Vectors, limit: int, hidden: bytes | None) -> Addresses:
        mask = {} if hidden is None else {"row_addr_blocklist": hidden}
        found = self.dataset.scanner(
            columns=["_distance"],
            nearest={"column": _COLUMN, "q": query.astype(np.float32), "k": limit, "minimum_nprobes": PROBES},
            prefilter=True,
            with_row_id=True,
            **mask,
        ).to_table()
        return np.asarray(found[ROW_ID].to_numpy(), np.uint64)


class View:
    """Threads may ask what it holds while one adds to it: they go on with the ``content`` that they have."""

    def __init__(self, folder: Folder, metric: Metric, vectors: Float32s) -> None:
        self.metric = metric
        self._folder = folder
        self._address = str(folder.path / "view")
        hashes, addresses = self._write(vectors)
        partitions = max(1, len(vectors) // ROWS_EACH)
        self._opened().create_index(_COLUMN, "IVF_FLAT", num_partitions=partitions, metric=metric)
        self.content = Content(self._opened(), hashes, addresses)

    def add(self, vectors: Float32s) -> None:
        before = self.content
        hashes, addresses = self._write(vectors)
        if addresses[0] <= before.addresses[-1]:
            raise OSError("somebody has removed the view: what was written is another one")
        self._opened().optimize.optimize_indices(num_indices_to_merge=0)
        self.content = Content(
            self._opened(),
            np.concatenate([before.hashes, hashes]),
            np.concatenate([before.addresses, addresses]),
        )

    def _write(self, vectors: Float32s) -> tuple[Hashes, Addresses]:
        """As one more fragment."""
        hashes, first = np.unique(hashed(vectors), return_index=True)
        rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors[first].reshape(-1)), vectors.shape[1])
        written = pa.table({_COLUMN: rows})
        lance.write_dataset(
            written, self._address, mode="append", max_rows_per_file=1 << 30, max_bytes_per_file=1 << 50
        )
        fragment = max(f.fragment_id for f in self._opened().get_fragments())
        return hashes, (np.uint64(fragment) << np.uint64(32)) + np.arange(len(first), dtype=np.uint64)

    def _opened(self) -> Any:
        return lance.dataset(self._address)

    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self._folder.path.rglob("*") if file.is_file())

    def remove(self) -> None:
        self._folder.remove()


_FACTORS = np.random.default_rng(0x6C616E63).integers(1, 1 << 63, 1 << 16, dtype=np.uint64) | np.uint64(1)


def hashed(vectors: Float32s) -> Hashes:
    """One number a vector, by its bits.  Vectors that share one by accident are taken for each other where candidates are
    chosen, no further."""
    found = np.zeros(len(vectors), np.uint64)
    bits = np.ascontiguousarray(vectors).view(np.uint32)
    for at in range(0, vectors.shape[1], 32):
        part = bits[:, at : at + 32].astype(np.uint64)
        found += (part * _FACTORS[at : at + part.shape[1]]).sum(axis=1, dtype=np.uint64)
    return found


class Held:
    """Which rows of a state a view holds."""

    def __init__(self, content: Content, hashes: Hashes) -> None:
        self.content = content
        order = np.argsort(content.hashes)
        at = np.searchsorted(content.hashes, hashes, sorter=order)
        at = order[np.minimum(at, len(order) - 1)]
        held = content.hashes[at] == hashes
        self.rest: Places = np.flatnonzero(~held)
        """Places of the rows that it does not hold."""
        self.places: Places = np.flatnonzero(held)
        of_places = content.addresses[at[held]]
        order = np.argsort(of_places, kind="stable")
        self._places, self._addresses = self.places[order], of_places[order]
        self.hidden = mask_of(np.setdiff1d(content.addresses, of_places))
        self.dead = 1 - len(np.unique(of_places)) / len(content.addresses)
        """Share of what it holds that is no row of the state."""

    def nearest(self, query: Vectors, limit: int) -> Places:
        """Places of rows that are nearest by the view."""
        # Not more than there are: Lance takes memory for as many as it is asked for, or ends the process.
        found = np.sort(self.content.nearest(query, min(limit, len(self.places)), self.hidden))
        begins, ends = np.searchsorted(self._addresses, found, "left"), np.searchsorted(self._addresses, found, "right")
        parts = [self._places[begin:end] for begin, end in zip(begins, ends, strict=True)]
        return np.concatenate([np.zeros(0, np.int64), *parts])


@dataclass(slots=True)
class _Work:
    """What a view would have saved."""

    compared: int = 0
    refused: int = 0
    """So many rows could not be taken in; it is not tried again before there are fewer."""


class PrivateViews:
    """Of an open table, one for each column and metric; threads may share it."""

    def __init__(self, scratch: str | None = None, bytes_max: int = 0) -> None:
        self._scratch = None if scratch is None else Path(scratch)
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._views: dict[tuple[str, Metric], View] = {}
        self._work: dict[tuple[str, Metric], _Work] = {}

    def get(self, column: str, metric: Metric) -> View | None:
        return self._views.get((column, metric))

    def compared(self, key: tuple[str, Metric], rows: int, vectors: Callable[[], Float32s], held: Held | None) -> None:
        """So many rows were compared, which no view holds: one is made, or carried on, when that pays."""
        if self._scratch is None or rows < ROWS_MIN or not self._lock.acquire(blocking=False):
            return
        try:
            work = self._work.setdefault(key, _Work())
            work.compared += rows
            if work.compared < PAYS_AFTER * rows or (work.refused and rows >= work.refused):
                return
            work.compared = 0
            work.refused = 0 if self._take_in(key, vectors(), held) else rows
        finally:
            self._lock.release()

    def _take_in(self, key: tuple[str, Metric], rows: Float32s, held: Held | None) -> bool:
        assert self._scratch is not None
        if len(rows) < ROWS_MIN:
            return False
        before = self._views.get(key)
        carried_on = before is not None and held is not None and held.content is before.content and held.dead <= 0.5
        if before is not None and not carried_on:
            self._drop(key)
        taken = sum(view.bytes() for view in self._views.values())
        if taken + rows.nbytes * _OVERHEAD > self._bytes_max:
            return False
        try:
            if carried_on:
                assert before is not None
                before.add(rows)
            else:
                self._views[key] = View(Folder(self._scratch), key[1], rows)
        except (OSError, RuntimeError, ValueError):  # no room, no rights, or what Lance makes of them
            self._drop(key)
            return carried_on  # what was there is gone, and another one may be made
        return True

    def _drop(self, key: tuple[str, Metric]) -> None:
        view = self._views.pop(key, None)
        if view is not None:
            view.remove()
