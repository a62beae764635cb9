"""Files to be loaded: find, open and check them, and read them as batches of the contract's columns.

Accepted are Parquet (``.parquet``, ``.pq``) and Arrow IPC files (``.arrow``, ``.feather``, ``.ipc``), local or in an
``s3://`` bucket that the table's store options open.  A folder stands for all such files in it, at any depth, in the
order of their names.  Names that begin with ``_`` or ``.`` are skipped, as in Spark and Hive.

Guarantees
 1. Every file's columns are checked before a row of any file is read (``columns``).
 2. One batch is held in memory at a time.  If a Parquet file is read backwards, one row group is.
 3. Times in Parquet are exact (``parquet_times``).
 4. A file that cannot be read, whatever its bytes, raises ``InvalidInput``.  So does an Arrow file with a batch that would
    unpack to more than ``UNPACKED_BYTES`` and more than a hundred times its size.  A Parquet file may hold a value once, in
    a dictionary, and refer to it many times.  Such values take at most ``UNPACKED_BYTES`` a batch, unless a single row
    takes more.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lancewal_core.errors import InvalidInput, ObjectCorrupt, StoreUnavailable, TableMissing
from lancewal_core.process.library_errors import first_line
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.address import local_folder
from lancewal_core.store.arrow_message import declared_in_file
from lancewal_core.store.obstore import ObstoreStore, open_files
from lancewal_tables.load.columns import check_columns, conform
from lancewal_tables.load.parquet_times import columns_of_int96, exact_batches, readable_schema

PARQUET = frozenset([".parquet", ".pq"])
ARROW = frozenset([".arrow", ".feather", ".ipc"])
_KINDS = f"Parquet ({', '.join(sorted(PARQUET))}) or Arrow IPC ({', '.join(sorted(ARROW))})"
BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
UNPACKED_BYTES = 1 << 30
_UNPACKED_RATIO = 100


@dataclass(frozen=True, slots=True)
class LoadFile:
    """A stored file that is to be loaded."""

    store: ObstoreStore
    key: str
    shown: str
    """Address of the file, for messages."""
    size: int

    def rows(self) -> int:
        """Return the number of rows of the file."""
        with self._readable():
            opened = self._open()
            return int(opened.metadata.num_rows if isinstance(opened, pq.ParquetFile) else opened.count_rows())

    def check(self, rows: RowSchema) -> None:
        """Raise ``InvalidSchema`` if columns do not fit the table, and ``InvalidInput`` if the file cannot be read."""
        with self._readable():
            opened = self._open()
            if isinstance(opened, pq.ParquetFile):
                check_columns(readable_schema(opened, rows), rows, self.shown, columns_of_int96(opened))
            else:
                check_columns(opened.schema, rows, self.shown)
                self._check_unpacked()

    def batches(self, names: Sequence[str], rows: RowSchema, *, backwards: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the columns ``names`` of all rows, in the table's types; ``backwards``: the last batch first."""
        with self._readable():
            opened = self._open(names)
            if isinstance(opened, pq.ParquetFile):
                found = exact_batches(
                    opened,
                    lambda unit: _of_parquet(self._parquet(unit), names, backwards),
                    names,
                    rows,
                    self.shown,
                )
            else:
                found = _of_arrow(opened, backwards)
            for batch in found:
                yield conform(batch, names, rows, self.shown)

    def _open(self, names: Sequence[str] = ()) -> Any:
        if _suffix(self.key) in PARQUET:
            return self._parquet()
        opened = pa.ipc.open_file(self._source())
        if not names:
            return opened
        options = pa.ipc.IpcReadOptions(included_fields=[opened.schema.get_field_index(name) for name in names])
        return pa.ipc.open_file(self._source(), options=options)

    def _check_unpacked(self) -> None:
        """Raise ``InvalidInput`` if a batch of the Arrow file would unpack to too many bytes (guarantee 4)."""

        def read(start: int, end: int) -> bytes:
            source.seek(start)
            return source.read(end - start)

        source = io.BufferedReader(_Stored(self))
        for packed, declared in declared_in_file(read, self.size):
            if declared.raw_bytes > max(UNPACKED_BYTES, _UNPACKED_RATIO * packed):
                raise InvalidInput(
                    f"{self.shown} cannot be loaded: a record batch of {packed} bytes unpacks to {declared.raw_bytes}. "
                    "Write the file with smaller batches",
                    file=self.shown,
                )

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, ObjectCorrupt, OSError, UnicodeDecodeError) as error:
            stream = "" if _suffix(self.key) in PARQUET else "; an Arrow stream has to be written as an IPC file first"
            said = f"{self.shown} cannot be read: {first_line(error)[:200]}{stream}"
            raise InvalidInput(said, file=self.shown) from error

    def _parquet(self, unit: str = "ns") -> Any:
        """Open the Parquet file.  ``unit``: the unit in which INT96 times are read."""
        return pq.ParquetFile(self._source(), coerce_int96_timestamp_unit=unit)

    def _source(self) -> pa.PythonFile:
        return pa.PythonFile(io.BufferedReader(_Stored(self)), mode="r")


def find_files(addresses: Sequence[str], options: Mapping[str, str]) -> tuple[LoadFile, ...]:
    """Return the files at the addresses, which may be files or folders, in their order.

    Raises ``InvalidInput`` if an address has no file, a file has another format, or a file is named twice.
    """
    found = [file for address in addresses for file in _files_at(address, options)]
    for often, count in Counter(file.shown for file in found).most_common(1):
        if count > 1:
            raise InvalidInput(f"{often} is named {count} times: name each file once")
    return tuple(found)


def _files_at(address: str, options: Mapping[str, str]) -> Sequence[LoadFile]:
    address = address.rstrip("/")
    folder, _, name = address.rpartition("/")
    if _suffix(name) in PARQUET | ARROW and not _is_local_folder(address):
        path = local_folder(address)
        if path is not None and path.exists() and not path.is_file():
            raise InvalidInput(f"{address} is not a regular file", file=address)
        store = _store(folder or ("/" if address.startswith("/") else "."), options, address)
        size = store.size(name)
        if size is None:
            raise InvalidInput(f"there is no file {address}", file=address)
        return [LoadFile(store, name, address, size)]
    path = local_folder(address)
    if path is not None and path.exists() and not path.is_dir():
        raise InvalidInput(f"{address} is not {_KINDS}", file=address)
    store = _store(address, options, address)
    listed = sorted(
        (i for i in store.list("") if not any(p[:1] in "_." for p in i.key.split("/"))), key=lambda i: i.key
    )
    files = [LoadFile(store, i.key, f"{address}/{i.key}", i.size) for i in listed]
    strange = [f.shown for f in files if _suffix(f.key) not in PARQUET | ARROW]
    if strange or not files:
        what = f"{strange[0]} is not" if strange else f"{address} holds no file that is"
        raise InvalidInput(f"{what} {_KINDS}")
    return files


def _store(folder: str, options: Mapping[str, str], address: str) -> ObstoreStore:
    try:
        return open_files(folder, options)
    except TableMissing as error:
        raise InvalidInput(f"there is no file or folder {address}", file=address) from error


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _is_local_folder(address: str) -> bool:
    path = local_folder(address)
    return path is not None and path.is_dir()


def _of_parquet(file: Any, names: Sequence[str], backwards: bool) -> Iterator[pa.RecordBatch]:
    groups = range(file.metadata.num_row_groups)
    size = _batch_rows(file, names)
    if not backwards:
        yield from file.iter_batches(size, row_groups=list(groups), columns=list(names))
        return
    for group in reversed(groups):
        yield from reversed(list(file.iter_batches(size, row_groups=[group], columns=list(names))))


def _batch_rows(file: Any, names: Sequence[str]) -> int:
    """Return the number of rows of a batch of about ``BATCH_BYTES``.  The number depends on the columns, since rows
    with vectors have kilobytes."""
    known = file.metadata
    groups = [known.row_group(i) for i in range(known.num_row_groups)]
    row_bytes = max(1, sum(group.total_byte_size for group in groups) // max(known.num_rows, 1))
    # The longest value is no longer than the dictionary that holds it.
    longest = max((sum(_dictionaries(group, names)) for group in groups), default=0)
    return int(max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes, UNPACKED_BYTES // max(longest, 1))))


def _dictionaries(group: Any, names: Sequence[str]) -> Iterator[int]:
    """Yield for each wanted column with a dictionary the bytes of its largest value, as an upper bound."""
    for column in (group.column(i) for i in range(group.num_columns)):
        wanted = column.path_in_schema.split(".")[0] in names
        if wanted and column.has_dictionary_page and column.physical_type == "BYTE_ARRAY":
            yield column.total_uncompressed_size


def _of_arrow(file: Any, backwards: bool) -> Iterator[pa.RecordBatch]:
    numbers = range(file.num_record_batches)
    for number in reversed(numbers) if backwards else numbers:
        batch = file.get_batch(number)
        starts = range(0, batch.num_rows, BATCH_ROWS)
        for start in reversed(starts) if backwards else starts:
            yield batch.slice(start, BATCH_ROWS)


class _Stored(io.RawIOBase):
    """A stored object as a seekable file, of which only the ranges that are read are fetched."""

    def __init__(self, file: LoadFile) -> None:
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._file.size)
        if end <= self._at:
            return 0
        data = self._file.store.get_range(self._file.key, self._at, end)
        if data is None:
            raise StoreUnavailable(f"{self._file.shown} was removed while it was loaded", file=self._file.shown)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
