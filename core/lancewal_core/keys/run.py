"""A key run: where the rows of some data files lie, sorted by key, in parts of bounded size.

An *entry* says that a physical row of a data file has a key.  A run has one entry for every physical row of each file
that it covers, deleted rows too.  Which rows are live depends on the table version, not on the file.  Data files
never change, so a run is never out of date; at worst its files are no longer in use.

A *part* is an immutable, uncompressed Arrow stream of one batch.  It is read in place (memory-mapped).  Its columns
are

* ``number`` and ``key``: the key (``code``); ``key`` only where numbers alone do not decide,
* ``row`` (uint32): the physical row,
* ``file`` (uint32): place in the run's list of files,
* ``region`` (int32): place in the run's list of regions, -1 if the region is not known; only in tables whose rows do
  not tell their region (``origin``).

Entries are sorted by ``number``, and so are the parts of a run.  No number is in two parts of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.keys.code import CodedKeys, join_keys
from lancewal_core.keys.sorted_search import every_step, first_places
from lancewal_core.rows.key_set import NumberFilter
from lancewal_core.store.arrow_message import declared_stream

PART_ENTRIES = 524_288
"""Entries of one part.  Each takes 16 bytes in addition to the key's own bytes, so a part has about 8 MB."""

_SCANNED = 16
"""Up to so many entries for each key sought, looking at all entries is faster than searching for each key."""

NO_REGION = -1

Rows = npt.NDArray[np.uint32]
Regions = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of a key run as parallel arrays, sorted by the numbers of their keys."""

    keys: CodedKeys
    rows: Rows
    """Physical rows."""
    files: Rows
    """Data file of each entry, as an index into the run's list of files."""
    regions: Regions | None = None
    """Region of each entry, as an index into the run's list of regions; None if no region is known."""
    steps: Places | None = None
    """Every so many-th number of the keys, for ``sorted_search``; only in a part that was read and is to be searched.
    """

    def __len__(self) -> int:
        return len(self.rows)

    def slice(self, start: int, end: int) -> Entries:
        """Return the entries [start, end)."""
        texts = None if self.keys.texts is None else self.keys.texts.slice(start, end - start)
        regions = None if self.regions is None else self.regions[start:end]
        return Entries(
            CodedKeys(self.keys.numbers[start:end], texts), self.rows[start:end], self.files[start:end], regions
        )

    def kept(self, wanted: npt.NDArray[np.bool_]) -> Entries:
        """Return the entries where the mask ``wanted`` is True."""
        at = np.flatnonzero(wanted)
        regions = None if self.regions is None else self.regions[at]
        return Entries(self.keys.take(at), self.rows[at], self.files[at], regions)


@dataclass(frozen=True, slots=True)
class FoundEntries:
    """Entries that have one of the keys sought, as parallel arrays."""

    places: Places
    """For each entry found, the index of its key in the keys sought."""
    files: Rows
    rows: Rows
    regions: Regions


def sorted_entries(keys: CodedKeys, rows: Rows, files: Rows, regions: Regions | None = None) -> Entries:
    """Return the entries, given in any order, sorted by number."""
    order = np.argsort(keys.numbers)
    return Entries(keys.take(order), rows[order], files[order], None if regions is None else regions[order])


def join_entries(parts: Sequence[Entries]) -> Entries:
    """Return all entries of several sorted lists as one sorted list.  There must be at least one list."""
    if len(parts) == 1:
        return parts[0]
    keys = join_keys([part.keys for part in parts])
    regions = None
    if any(part.regions is not None for part in parts):
        regions = np.concatenate([_regions(part) for part in parts])
    return sorted_entries(
        keys, np.concatenate([part.rows for part in parts]), np.concatenate([part.files for part in parts]), regions
    )


def _regions(part: Entries) -> Regions:
    return np.full(len(part), NO_REGION, np.int32) if part.regions is None else part.regions


def cut(entries: Entries, size: int = PART_ENTRIES) -> Iterator[Entries]:
    """Yield the entries in parts of about ``size`` entries.  Entries with equal numbers are in one part."""
    numbers = entries.keys.numbers
    start = 0
    while start < len(entries):
        end = start + size
        end = len(entries) if end >= len(entries) else int(np.searchsorted(numbers, numbers[end - 1], side="right"))
        yield entries.slice(start, end)
        start = end


def encode_part(entries: Entries) -> bytes:
    """Return the bytes of a part's object."""
    columns = {"number": pa.array(entries.keys.numbers)}
    if entries.keys.texts is not None:
        columns["key"] = entries.keys.texts
    columns |= {"row": pa.array(entries.rows), "file": pa.array(entries.files)}
    if entries.regions is not None:
        columns["region"] = pa.array(entries.regions)
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def decode_part(data: pa.Buffer, where: str) -> Entries:
    """Return the entries of a part, without a copy.  Raises ``ObjectCorrupt`` if the bytes, whose checksum was right,
    are not a part.
    """
    try:
        return _entries(data)
    except (ObjectCorrupt, pa.ArrowException, KeyError, ValueError, TypeError, OSError, StopIteration) as error:
        raise ObjectCorrupt(
            f"{where}, a part of the key index, is corrupt: {str(error)[:200]}. The rows it covers are found by a scan",
            object=where,
        ) from error


def _entries(data: pa.Buffer) -> Entries:
    if declared_stream(data).raw_bytes > data.size:
        raise ObjectCorrupt("the part is compressed")
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    batch.validate(full=True)
    texts = batch.column("key") if "key" in batch.schema.names else None
    wanted = {"number": pa.int64(), "row": pa.uint32(), "file": pa.uint32()}
    if texts is not None:
        wanted["key"] = pa.large_binary()
    if "region" in batch.schema.names:
        wanted["region"] = pa.int32()
    if {f.name: f.type for f in batch.schema} != wanted:
        raise ObjectCorrupt(f"no part has the columns {batch.schema.names}")
    if any(column.null_count for column in batch.columns):
        raise ObjectCorrupt("the part has nulls")
    number, row, file = (np.asarray(batch.column(name)) for name in ("number", "row", "file"))
    regions = np.asarray(batch.column("region")) if "region" in wanted else None
    return Entries(CodedKeys(number, texts), row, file, regions, every_step(number))


class SoughtKeys:
    """Keys to be looked up, sorted once for all parts.  ``places`` are the keys' indexes in the caller's order."""

    def __init__(self, keys: CodedKeys) -> None:
        self.places: Places = np.argsort(keys.numbers)
        self.keys = keys.take(self.places)
        self._filter: NumberFilter | None = None

    def any_in(self, first: int, last: int) -> bool:
        """Return whether one of the keys has a number from ``first`` to ``last``."""
        start, end = self.span(first, last)
        return start < end

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of indexes, in the sorted keys, of those with numbers from ``first`` to ``last``."""
        numbers = self.keys.numbers
        return int(np.searchsorted(numbers, first, side="left")), int(np.searchsorted(numbers, last, side="right"))

    def may_hold(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return a mask over ``numbers``: True for every number that one of the keys has, and False for most others."""
        if self._filter is None:
            self._filter = NumberFilter(self.keys.numbers)  # made whole first: another thread may look
        return self._filter.may_hold(numbers)


def find_in_part(part: Entries, sought: SoughtKeys) -> FoundEntries:
    """Return the part's entries for the keys sought.

    If there are many more entries than keys, each key is searched for among the entries.  Otherwise a table of hash
    bits drops most entries, and the others are searched for among the keys.
    """
    numbers = part.keys.numbers
    start, end = sought.span(int(numbers[0]), int(numbers[-1])) if len(numbers) else (0, 0)
    wanted = sought.keys.numbers[start:end]
    if len(numbers) < _SCANNED * len(wanted):
        near = np.flatnonzero(sought.may_hold(numbers))
        at, asked = _equal(numbers[near], wanted, np.searchsorted(wanted, numbers[near]))
        at = near[at]
    else:
        steps = every_step(numbers) if part.steps is None else part.steps
        asked, at = _equal(wanted, numbers, first_places(wanted, numbers, steps))
    asked = asked + start
    if part.keys.texts is not None and sought.keys.texts is not None and len(at):
        equal = pc.equal(part.keys.texts.take(pa.array(at)), sought.keys.texts.take(pa.array(asked)))
        kept = np.flatnonzero(np.asarray(equal.to_numpy(zero_copy_only=False)))
        asked, at = asked[kept], at[kept]
    regions = np.full(len(at), NO_REGION, np.int32) if part.regions is None else part.regions[at]
    return FoundEntries(sought.places[asked], part.files[at], part.rows[at], regions)


def _equal(some: npt.NDArray[np.int64], ascending: npt.NDArray[np.int64], first: Places) -> tuple[Places, Places]:
    """Return all pairs of indexes with equal numbers in both arrays.  ``first``: for each of ``some``,
    the first index in ``ascending`` whose number is not lower."""
    nothing = np.zeros(0, np.int64)
    if not len(ascending):
        return nothing, nothing
    last = len(ascending) - 1
    left = np.minimum(first, last)
    chosen = np.flatnonzero(ascending[left] == some)
    left = left[chosen]
    found: list[tuple[Places, Places]] = [(nothing, nothing)]
    while len(chosen):
        found.append((chosen, left))
        # A number may stand several times: rows of earlier generations, or other keys with the same hash.
        more = np.flatnonzero(left < last)
        chosen, left = chosen[more], left[more] + 1
        same = np.flatnonzero(ascending[left] == some[chosen])
        chosen, left = chosen[same], left[same]
    return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])
