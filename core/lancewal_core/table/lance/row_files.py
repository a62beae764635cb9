"""Data files of new rows, which no version refers to yet.

A version reads columns of a file by their field ids.  If the caller gives these, a file does not depend on the
columns that the table has while the file is written.  The columns have the caller's names in the file.  One version
is kept open only to say how files are encoded, so a write sends no request for it.

By default Lance reserves two cores for reading and writing.  With two or three cores it has one thread for everything
else.  Writing 100,000 rows then took 38 ms instead of 28 (Lance 14, two cores).  Writers (services, commands, bulk
loads) use as many threads as cores.  Readers keep Lance's default, since their own work on the rows needs the other
core (strong reads took a tenth longer without it).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import pyarrow as pa
from lance.fragment import write_fragments

from lancewal_core.rows.own_rows import whole_arrays
from lancewal_core.table.lance.errors import write_error, writing

CORES_RESERVED = "LANCE_IO_CORE_RESERVATION"
"""Environment variable of Lance: the number of cores that Lance reserves for reading and writing."""
ROWS_PER_FILE = 1_048_576
"""Largest number of rows of one new data file."""
BYTES_IN_HALVES = range(16 << 20, 128 << 20)
"""Bytes of rows in memory for which ``RowFiles.write`` writes two files instead of one.  The rows must also be at
most half of ``ROWS_PER_FILE``.

Lance encodes most of a file in one thread (250,000 rows of 28 MB took 80 ms in one file, 53 ms in two).  More than two
files would cost each merge more deletion files, one for each fragment.  Halves with more rows would be so large that
compaction would no longer put them together."""


def use_all_cores() -> None:
    """Give Lance a thread for each core, unless the environment sets ``CORES_RESERVED``.  Call this before Lance first
    reads or writes in this process."""
    os.environ.setdefault(CORES_RESERVED, "0")


class RowFiles:
    """Writer of data files for the data set at ``uri``.  ``newest`` opens its newest version."""

    def __init__(self, uri: str, newest: Callable[[], Any]) -> None:
        self._uri = uri
        self._newest = newest
        self._kept: Any = None
        """The version that is kept open, a ``lance.LanceDataset``; None before the first write."""
        self._lock = Lock()

    def write(self, rows: pa.Table, field_ids: Mapping[str, Sequence[int]] | None) -> tuple[str, ...]:
        """Write rows as ``StoredTable.write_rows`` says, by two threads if that is faster."""
        part = _rows_of_one_writer(rows)
        if part == rows.num_rows:
            return self._write(rows, field_ids)
        with ThreadPoolExecutor(1, thread_name_prefix="lancewal-write") as beside:
            first = beside.submit(self._write, rows.slice(0, part), field_ids)
            second = self._write(rows.slice(part), field_ids)
            return (*first.result(), *second)

    def _write(self, rows: pa.Table, field_ids: Mapping[str, Sequence[int]] | None) -> tuple[str, ...]:
        through, act = self._to_write_through(), f"writing rows to {self._uri}"
        if field_ids is not None:
            rows = _encoded_alike(rows, field_ids, through)
        # Lance numbers the fields from 0 if it shall not append.
        mode = "append" if field_ids is None else "overwrite"
        try:
            with writing(act):
                written = write_fragments(whole_arrays(rows), through, mode=mode, max_rows_per_file=ROWS_PER_FILE)
        except OSError as error:
            raise write_error(error, act) from error
        found = [f.to_json() for f in written]
        if field_ids is not None:
            ids = [i for name in rows.column_names for i in field_ids[name]]
            for file in (file for fragment in found for file in fragment["files"]):
                file["fields"] = [ids[number] for number in file["fields"]]
        return tuple(map(json.dumps, found))

    def _to_write_through(self) -> Any:
        with self._lock:
            if self._kept is None:
                self._kept = self._newest()
            return self._kept


def _encoded_alike(rows: pa.Table, field_ids: Mapping[str, Sequence[int]], through: Any) -> pa.Table:
    """Return the rows with the column metadata of the version ``through``, by which users choose encodings."""
    chosen = {f.id(): through.schema.field(f.name()).metadata for f in through.lance_schema.fields()}
    if not any(chosen.values()):
        return rows
    fields = [field.with_metadata(chosen.get(field_ids[field.name][0]) or {}) for field in rows.schema]
    return pa.Table.from_arrays(rows.columns, schema=pa.schema(fields))


def _rows_of_one_writer(rows: pa.Table) -> int:
    """Return how many rows the first of two writers takes; the second takes the others.  Return all rows if one
    writer is enough.

    The first writer takes whole files, or half the rows of a single file."""
    count = int(rows.num_rows)
    files = -(-count // ROWS_PER_FILE)
    if files > 1:
        return -(-files // 2) * ROWS_PER_FILE
    if 2 <= count <= ROWS_PER_FILE // 2 and rows.nbytes in BYTES_IN_HALVES:
        return -(-count // 2)
    return count
