"""Data files of new rows, which no version names yet.

The files are written through a version that is kept open, so that a write needs no other request.  Only the columns of
that version matter, and the table's columns may have changed since.  The files then still have the contract's field
ids.  A version takes them in only after ``check_table`` has passed.

Lance leaves two cores to reading and writing.  So with two or three cores it has one thread for all else.  Writing
100,000 rows then took 38 ms instead of 28 (Lance 14, two cores).  Writers (services, commands, bulk loads) use as many
threads as cores.  Readers keep Lance's number: their own work on the rows takes the other core (strong reads took a
tenth longer).
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

from lancewal_core.errors import ContractMismatch
from lancewal_core.process.library_errors import first_line
from lancewal_core.rows.own_rows import whole_arrays
from lancewal_core.table.lance.errors import write_error, writing

CORES_RESERVED = "LANCE_IO_CORE_RESERVATION"
"""Lance's variable."""
_OTHER_SCHEMA = "append with different schema"
_NULLS_REFUSED = "contained null values even though the field is marked non-null"
ROWS_PER_FILE = 1_048_576
"""Most rows that one new data file takes."""
BYTES_IN_HALVES = range(16 << 20, 128 << 20)
"""Sizes of rows, in bytes, that are written as two files, if the rows are at most half the rows of a file.

Lance encodes most of a file in one thread (250,000 rows of 28 MB took 80 ms in one file, 53 ms in two).  More files
would cost each merge more deletion files, one for each fragment.  With more rows, compaction would leave alone what it
bundles in halves."""


def use_all_cores() -> None:
    """Give Lance a thread for each core, unless the environment says otherwise.  This must be called before Lance reads
    or writes in this process."""
    os.environ.setdefault(CORES_RESERVED, "0")


class RowFiles:
    """Files of rows of the data set at ``uri``; ``newest`` opens its newest version."""

    def __init__(self, uri: str, newest: Callable[[], Any]) -> None:
        self._uri = uri
        self._newest = newest
        self._kept: Any = None
        """The version that is kept open."""
        self._lock = Lock()

    def write(self, rows: pa.Table, field_ids: Mapping[str, Sequence[int]] | None) -> tuple[str, ...]:
        """Write rows as ``Table.write_rows`` says, by two writers if that is faster."""
        part = _rows_of_one_writer(rows)
        if part == rows.num_rows:
            return self._write(rows, field_ids)
        with ThreadPoolExecutor(1, thread_name_prefix="lancewal-write") as beside:
            first = beside.submit(self._write, rows.slice(0, part), field_ids)
            second = self._write(rows.slice(part), field_ids)
            return (*first.result(), *second)

    def _write(self, rows: pa.Table, field_ids: Mapping[str, Sequence[int]] | None) -> tuple[str, ...]:
        through, was_open = self._to_write_through()
        try:
            return self._written_through(through, rows, field_ids)
        except ContractMismatch:
            if not was_open:
                raise
        # It may be of a time at which somebody had changed the columns, who has changed them back since.
        return self._written_through(self._to_write_through()[0], rows, field_ids)

    def _written_through(
        self, through: Any, rows: pa.Table, field_ids: Mapping[str, Sequence[int]] | None
    ) -> tuple[str, ...]:
        act = f"writing rows to {self._uri}"
        try:
            with writing(act):
                written = write_fragments(whole_arrays(rows), through, mode="append", max_rows_per_file=ROWS_PER_FILE)
        except OSError as error:
            if any(text in str(error).lower() for text in (_OTHER_SCHEMA, _NULLS_REFUSED)):
                raise self._do_not_fit(first_line(error)) from error
            raise write_error(error, act) from error
        found = [f.to_json() for f in written]
        if field_ids is not None:
            wanted = [i for name in rows.column_names for i in field_ids[name]]
            for ids in (file["fields"] for fragment in found for file in fragment["files"]):
                if ids != [i for i in wanted if i in ids]:  # which nested fields have a column of their own differs
                    raise self._do_not_fit(f"their columns have field ids {ids}, the contract's are {wanted}")
        return tuple(map(json.dumps, found))

    def _to_write_through(self) -> tuple[Any, bool]:
        """Return the version to write through, and whether it was open before."""
        with self._lock:
            was_open = self._kept is not None
            if not was_open:
                self._kept = self._newest()
            return self._kept, was_open

    def _do_not_fit(self, why: str) -> ContractMismatch:
        with self._lock:
            self._kept = None  # who changed the columns may have changed them back by the next try
        return ContractMismatch(
            f"rows of the contract's columns do not fit into {self._uri}: {why}; somebody changed the table's columns"
        )


def _rows_of_one_writer(rows: pa.Table) -> int:
    """Return how many rows the first of two writers takes, whole files or half a file; the second takes the others.
    All rows if one writer is enough."""
    count = int(rows.num_rows)
    files = -(-count // ROWS_PER_FILE)
    if files > 1:
        return -(-files // 2) * ROWS_PER_FILE
    if 2 <= count <= ROWS_PER_FILE // 2 and rows.nbytes in BYTES_IN_HALVES:
        return -(-count // 2)
    return count
