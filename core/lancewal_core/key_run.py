"""A key run: where the rows of some data files lie, sorted by key, in parts of bounded size.

An *entry* says that a physical row of a data file has a key.  A run has one entry for every physical row of each file
that it covers, deleted rows too: which rows are live is a matter of the table version, not of the file.  Data files never
change, so a run is never out of date; at worst its files are no longer in use.

A *part* is an immutable Arrow stream of one batch, uncompressed, that is read where it lies (memory-mapped): columns
``number`` and ``key`` (``key_code``; ``key`` only where numbers alone do not decide), ``row`` (uint32) and ``file``
(uint32, place in the run's list of files).  Entries are sorted by ``number``, the parts of a run too, and no number is in
two parts of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.arrow_message import declared_stream
from lancewal_core.errors import ObjectCorrupt
from lancewal_core.key_code import CodedKeys, join_keys

PART_ENTRIES = 524_288
"""A part takes 16 bytes an entry beside the key's bytes: about 8 MB."""

Rows = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Entries:
    """Parallel: keys, physical rows, and places in a list of files.  Sorted by the keys' numbers."""

    keys: CodedKeys
    rows: Rows
    files: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def slice(self, start: int, end: int) -> Entries:
        """Entries [start, end)."""
        texts = None if self.keys.texts is None else self.keys.texts.slice(start, end - start)
        return Entries(CodedKeys(self.keys.numbers[start:end], texts), self.rows[start:end], self.files[start:end])

    def kept(self, wanted: npt.NDArray[np.bool_]) -> Entries:
        """Those that are wanted."""
        at = np.flatnonzero(wanted)
        return Entries(self.keys.take(at), self.rows[at], self.files[at])


@dataclass(frozen=True, slots=True)
class FoundEntries:
    """Parallel: place of the key that was looked for, file, physical row."""

    places: Places
    files: Rows
    rows: Rows


def sorted_entries(keys: CodedKeys, rows: Rows, files: Rows) -> Entries:
    """Entries in any order, sorted."""
    order = np.argsort(keys.numbers, kind="stable")
    return Entries(keys.take(order), rows[order], files[order])


def join_entries(parts: Sequence[Entries]) -> Entries:
    """All entries of several sorted lists, at least one, sorted."""
    if len(parts) == 1:
        return parts[0]
    keys = join_keys([part.keys for part in parts])
    return sorted_entries(
        keys, np.concatenate([part.rows for part in parts]), np.concatenate([part.files for part in parts])
    )


def cut(entries: Entries, size: int = PART_ENTRIES) -> Iterator[Entries]:
    """Into parts of about ``size`` entries; equal numbers stay together."""
    numbers = entries.keys.numbers
    start = 0
    while start < len(entries):
        end = start + size
        end = len(entries) if end >= len(entries) else int(np.searchsorted(numbers, numbers[end - 1], side="right"))
        yield entries.slice(start, end)
        start = end


def encode_part(entries: Entries) -> bytes:
    """A part as an object's bytes."""
    columns = {"number": pa.array(entries.keys.numbers)}
    if entries.keys.texts is not None:
        columns["key"] = entries.keys.texts
    batch = pa.record_batch({**columns, "row": pa.array(entries.rows), "file": pa.array(entries.files)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def decode_part(data: pa.Buffer, where: str) -> Entries:
    """The entries of a part, without a copy.  ``ObjectCorrupt`` if it is none: its checksum was right, its content is not."""
    try:
        return _entries(data)
    except (ObjectCorrupt, pa.ArrowException, KeyError, ValueError, TypeError, OSError, StopIteration) as error:
        raise ObjectCorrupt(f"{where} is no part of a key run: {str(error)[:200]}", object=where) from error


def _entries(data: pa.Buffer) -> Entries:
    if declared_stream(data).raw_bytes > data.size:
        raise ObjectCorrupt("it is compressed")
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
    batch.validate(full=True)
    texts = batch.column("key") if "key" in batch.schema.names else None
    wanted = {"number": pa.int64(), "row": pa.uint32(), "file": pa.uint32()}
    if texts is not None:
        wanted["key"] = pa.large_binary()
    if {f.name: f.type for f in batch.schema} != wanted:
        raise ObjectCorrupt(f"its columns are {batch.schema.names}")
    if any(column.null_count for column in batch.columns):
        raise ObjectCorrupt("it has nulls")
    number, row, file = (np.asarray(batch.column(name)) for name in ("number", "row", "file"))
    return Entries(CodedKeys(number, texts), row, file)


def find_in_part(part: Entries, keys: CodedKeys, places: Places) -> FoundEntries:
    """The part's entries for ``keys``, which are sorted by number; ``places`` name them in the result."""
    numbers = part.keys.numbers
    at = np.searchsorted(numbers, keys.numbers)
    inside = np.flatnonzero(at < len(numbers))
    asked, at = inside, at[inside]
    found_asked: list[Places] = []
    found_at: list[Places] = []
    while len(asked):
        same = numbers[at] == keys.numbers[asked]
        asked, at = asked[same], at[same]
        found_asked.append(asked)
        found_at.append(at)
        # A number may stand several times: rows of earlier generations, or other keys with the same hash.
        more = at + 1 < len(numbers)
        asked, at = asked[more], at[more] + 1
    asked = np.concatenate(found_asked) if found_asked else np.zeros(0, np.int64)
    at = np.concatenate(found_at) if found_at else np.zeros(0, np.int64)
    if part.keys.texts is not None and keys.texts is not None and len(at):
        equal = pc.equal(part.keys.texts.take(pa.array(at)), keys.texts.take(pa.array(asked)))
        kept = np.flatnonzero(np.asarray(equal.to_numpy(zero_copy_only=False)))
        asked, at = asked[kept], at[kept]
    return FoundEntries(places[asked], part.files[at], part.rows[at])
