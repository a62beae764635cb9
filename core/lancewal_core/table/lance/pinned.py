"""``PinnedTable`` over one version of a real Lance data set."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader, LanceFileSession
from pyroaring import BitMap

from lancewal_core.errors import RewriteFailed, StoreUnavailable, VersionGone, WriteFailed
from lancewal_core.names.ids import TableVersion
from lancewal_core.names.paths import INDICES, data_file
from lancewal_core.process.library_errors import first_line
from lancewal_core.process.tasks import use_threads
from lancewal_core.rows.carry import carry
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.lance.columns import overlaid, write_column_file
from lancewal_core.table.lance.deletions import DeletionFiles
from lancewal_core.table.lance.errors import reading, write_error, writing
from lancewal_core.table.lance.index_build import SYSTEM_INDEX
from lancewal_core.table.lance.row_mask import RowMask, row_list
from lancewal_core.table.protocol import ROW_ADDRESS, AllBut, Fragment, RowNumbers, TableIndex

_ROW_ID = "_rowid"
_CREATED_AT = "_row_created_at_version"
_UPDATED_AT = "_row_last_updated_at_version"
_BY_PATH = ("Inverted", "IVF_")
"""Prefixes of index kinds that Lance can extend by a new segment alone even if they cover a member of a struct."""
_BLOCKED_ONE_OF = 50
"""A scan has Lance leave out rows if at most one row in this many is left out, else ``RowMask`` does it.  Lance takes
less time for few rows.  For many rows it takes longer, since it reads the rows in between piece by piece."""
_READ_AHEAD_BYTES = 128 << 20
"""Largest number of bytes that a scan reads ahead.  Lance's own bound is 2 GiB, and Lance reads the more fragments at
the same time the more cores there are."""
_TAKEN_ONE_BY_ONE = 5_000
"""Largest number of rows that ``take`` reads one by one, which is faster for few rows.  More rows are read faster by a
scan of their fragments."""


class LancePinnedTable:
    """One version of a Lance data set."""

    def __init__(
        self, dataset: Any, deletions: Callable[[], DeletionFiles], files: Callable[[], LanceFileSession]
    ) -> None:
        """``dataset``: the opened ``lance.LanceDataset``.  ``deletions`` opens the deletion files in the table's
        folder, and ``files`` its other files."""
        self._opened = dataset
        self._deletions = deletions
        self._files = files
        self._fragments: tuple[Fragment, ...] | None = None
        self._schema: pa.Schema | None = None
        self._field_ids: Mapping[str, tuple[int, ...]] | None = None
        self._described: Sequence[Any] | None = None

    @property
    def _dataset(self) -> Any:
        use_threads()
        return self._opened

    @property
    def version(self) -> TableVersion:
        return TableVersion(self._dataset.version)

    @property
    def config(self) -> Mapping[str, str]:
        return cast("Mapping[str, str]", self._dataset.config())

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:  # Lance makes it anew each time, which costs more the more columns there are
            self._schema = self._dataset.schema
        return self._schema

    @property
    def file_format(self) -> str:
        return str(self._dataset.data_storage_version)

    @property
    def field_ids(self) -> Mapping[str, tuple[int, ...]]:
        if self._field_ids is None:
            self._field_ids = {f.name(): tuple(field_ids_of([f])) for f in self._dataset.lance_schema.fields()}
        return self._field_ids

    @property
    def dataset(self) -> Any:
        """The ``lance.LanceDataset`` itself, for calls that only it has."""
        return self._dataset

    def fragments(self) -> Sequence[Fragment]:
        if self._fragments is None:
            found = [_fragment(f.metadata) for f in self._dataset.get_fragments()]
            self._fragments = tuple(sorted(found, key=lambda f: f.fragment_id))
        return self._fragments

    def fragment_ids(self) -> npt.NDArray[np.int64]:
        return np.sort(np.array([f.fragment_id for f in self._dataset.get_fragments()], np.int64))

    def fragment(self, fragment_id: int) -> Fragment:
        return _fragment(self._dataset.get_fragment(fragment_id).metadata)

    def fragment_json(self, fragment_id: int) -> str:
        return json.dumps(self._dataset.get_fragment(fragment_id).metadata.to_json())

    def indexes(self) -> Sequence[TableIndex]:
        return [self._index(i) for i in self.described_indexes() if not i.name.startswith(SYSTEM_INDEX)]

    def described_indexes(self) -> Sequence[Any]:
        """Return Lance's descriptions of all indexes, including its own system indexes."""
        if self._described is None:
            self._described = tuple(self._dataset.describe_indices())
        return self._described

    @property
    def stable_row_ids(self) -> bool:
        return bool(self._dataset.has_stable_row_ids)

    def updated_rows(self) -> frozenset[tuple[int, int]]:
        if not self._dataset.has_stable_row_ids:
            return frozenset()
        # Rows of most fragments were never updated: their metadata says both versions alike, and nothing is asked.
        doubtful = []
        for fragment in self._dataset.get_fragments():
            told = fragment.metadata.to_json()
            if told.get("created_at_version_meta") != told.get("last_updated_at_version_meta"):
                doubtful.append(fragment)
        if not doubtful:
            return frozenset()
        with self._reading("reading the row versions"):
            found = self._dataset.scanner(
                columns=[_CREATED_AT, _UPDATED_AT], fragments=doubtful, filter=f"{_CREATED_AT} < {_UPDATED_AT}"
            ).to_table()
        pairs = found.group_by([_CREATED_AT, _UPDATED_AT]).aggregate([])
        return frozenset(zip(pairs[_CREATED_AT].to_pylist(), pairs[_UPDATED_AT].to_pylist(), strict=True))

    def unrewritable_fragments(self) -> frozenset[int]:
        # With stable row ids an index that knows a row's old place finds it at the new one too: commits that write such
        # fragments anew were seen to be refused, to end in a panic of Lance, and to show rows twice in full text searches.
        if not self._dataset.has_stable_row_ids:
            return frozenset()
        return frozenset[int]().union(*(index.covered for index in self.indexes()))

    def _index(self, description: Any) -> TableIndex:
        live = {f.fragment_id for f in self.fragments()}  # Lance names dead ones too
        return TableIndex(
            description.name,
            tuple(frozenset(s.fragment_ids) & live for s in description.segments),
            frozenset(name for name, ids in self.field_ids.items() if not set(ids).isdisjoint(description.fields)),
            (description.total_size_bytes or 0) / max(description.num_rows_indexed or 0, 1),
            description.index_type,
            tuple(frozenset(s.fragment_ids) for s in description.segments),
            tuple(s.dataset_version_at_last_update for s in description.segments),
            self._extends_alone(description),
        )

    def _extends_alone(self, description: Any) -> bool:
        # For a segment of its own Lance looks a member of a struct up by its last name only: "No column with name lat".
        top = {ids[0] for ids in self.field_ids.values()}
        return top.issuperset(description.fields) or description.index_type.startswith(_BY_PATH)

    def scan(
        self,
        columns: Sequence[str],
        *,
        filter: str | None = None,
        fragment_ids: Sequence[int] | None = None,
        rows: range | AllBut | None = None,
        with_row_address: bool = False,
        batch_rows: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        allowed = self._allowed(fragment_ids, rows) if isinstance(rows, range) else None
        fragments = None if fragment_ids is None else [self._dataset.get_fragment(i) for i in fragment_ids]
        if not self.fragments() or fragments == []:
            return
        # Lance drops deleted rows column by column: of a table with many, that takes three times as long as the scan (own
        # measurement).  It cannot leave them in under a filter.
        wanted = None if fragment_ids is None else set(fragment_ids)
        scanned = [f for f in self.fragments() if wanted is None or f.fragment_id in wanted]
        ours = filter is None and any(f.deleted_rows for f in scanned)
        mask = blocked = None
        if isinstance(rows, AllBut) and len(rows.addresses):
            few = len(rows.addresses) <= sum(f.physical_rows for f in scanned) // _BLOCKED_ONE_OF
            if ours or filter is not None or self._dataset.has_stable_row_ids or not few:
                mask = RowMask(rows.addresses)
            else:
                blocked = row_list(rows.addresses)
        with reading(f"scanning version {self.version}"):
            scanner = self._dataset.scanner(
                columns=list(columns),
                filter=filter,
                fragments=fragments,
                with_row_address=with_row_address or mask is not None,
                row_addr_blocklist=blocked,
                with_row_id=ours,
                include_deleted_rows=ours,
                row_addr_allowlist=allowed,
                batch_size=batch_rows,
                io_buffer_size=_READ_AHEAD_BYTES,
                fragment_readahead=_fragments_ahead(scanned),
                scan_in_order=False,
            )
            for batch in scanner.to_batches():
                yield _of_live_rows(batch, mask, with_row_address) if ours or mask is not None else batch

    def _allowed(self, fragment_ids: Sequence[int] | None, rows: range) -> bytes:
        """Return the allow list that limits a scan to ``rows`` of the one fragment, in Lance's binary form."""
        if fragment_ids is None or len(fragment_ids) != 1 or self._dataset.has_stable_row_ids:
            raise ValueError("a range of rows needs exactly one fragment id, and a table without stable row ids")
        allowed = BitMap(rows).serialize()
        return struct.pack("<III", 1, fragment_ids[0], len(allowed)) + allowed

    def take(self, addresses: pa.Array, columns: Sequence[str]) -> pa.Table:
        wanted = pa.table({ROW_ADDRESS: addresses.cast(pa.uint64())})
        if wanted.num_rows == 0:
            return pa.table({name: pa.array([], self.schema.field(name).type) for name in columns})
        with reading(f"reading rows of version {self.version}"):
            if wanted.num_rows <= _TAKEN_ONE_BY_ONE and not self._dataset.has_stable_row_ids:
                # In the order asked for; those that are not live are passed over.
                found = self._dataset._take_rows(wanted[ROW_ADDRESS].to_pylist(), columns=[*columns, ROW_ADDRESS])
            else:
                found = self._dataset.scanner(
                    columns=list(columns),
                    with_row_address=True,
                    row_addr_allowlist=row_list(self._listable(wanted[ROW_ADDRESS]).to_numpy()),
                ).to_table()
        if found[ROW_ADDRESS].equals(wanted[ROW_ADDRESS]):
            return found.select(list(columns))
        places = pc.index_in(wanted[ROW_ADDRESS], found[ROW_ADDRESS].combine_chunks())
        if places.null_count:
            raise VersionGone(
                f"version {self.version}: a row that the read needs is no live row of the version", version=self.version
            )
        return found.select(list(columns)).take(places)

    def _listable(self, addresses: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the numbers by which Lance's allow list names these rows: their row ids if the table has stable
        ones, else their addresses."""
        if not self._dataset.has_stable_row_ids:
            return addresses
        fragments = np.unique(addresses.to_numpy() >> np.uint64(32)).tolist()
        known = self._dataset.scanner(
            columns=[],
            with_row_id=True,
            with_row_address=True,
            fragments=[self._dataset.get_fragment(i) for i in fragments],
        ).to_table()
        wanted = pc.is_in(known[ROW_ADDRESS], addresses.combine_chunks())
        return known[_ROW_ID].filter(wanted)

    def all_rows(self, fragment_id: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with reading(f"scanning fragment {fragment_id} of version {self.version}"):
            scanner = self._dataset.scanner(
                columns=list(columns),
                fragments=[self._dataset.get_fragment(fragment_id)],
                with_row_id=True,  # Lance asks for it where deleted rows are included
                include_deleted_rows=True,
                scan_in_order=True,
            )
            for batch in scanner.to_batches():
                yield batch.drop_columns([_ROW_ID])

    def hidden_rows(self, fragment_id: int) -> npt.NDArray[np.int64]:
        if self._deletes_elsewhere(fragment_id):
            return self._not_live(fragment_id)
        return np.asarray(self._deletions().hidden_rows(self._dataset, fragment_id).to_array(), np.int64)

    def _deletes_elsewhere(self, fragment_id: int) -> bool:
        """Return whether the fragment's deletion vector lies in another table's folder, as in a shallow clone."""
        file = self._dataset.get_fragment(fragment_id).metadata.deletion_file
        return file is not None and file.base_id is not None

    def _not_live(self, fragment_id: int) -> npt.NDArray[np.int64]:
        """Return the hidden rows of a fragment, by a scan of all other rows."""
        live = [
            np.asarray(batch.column(ROW_ADDRESS)) & np.uint64(0xFFFFFFFF)
            for batch in self.scan([], fragment_ids=[fragment_id], with_row_address=True)
        ]
        rows = self._dataset.get_fragment(fragment_id).physical_rows
        return np.setdiff1d(np.arange(rows), np.concatenate([np.zeros(0, np.int64), *live]).astype(np.int64))

    def hide_rows(self, fragment_id: int, rows: RowNumbers) -> str | None:
        if not self._deletes_elsewhere(fragment_id):
            written = self._deletions().hide_rows(self._dataset, fragment_id, np.asarray(rows, np.int64))
            return None if written is None else json.dumps(written)
        # Lance reads the one before it, which may be gone.
        with self._reading(f"writing a deletion vector of fragment {fragment_id}"):
            metadata = self._dataset.get_fragment(fragment_id).delete_rows([int(row) for row in rows])
        return None if metadata is None else json.dumps(metadata.to_json())

    def column_bytes(self, fragment_id: int, columns: Sequence[str]) -> Mapping[str, int] | None:
        metadata = self._dataset.get_fragment(fragment_id).metadata
        # Rows of a table with stable row ids say in which version each was changed last, which Lance would have to be told.
        if self._dataset.has_stable_row_ids or metadata.overlays:
            return None
        if any(file.base_id is not None for file in metadata.files):
            return None  # of a shallow clone: the file lies in another table's folder
        column_of = {i: name for name in columns for i in self.field_ids[name]}
        found = dict.fromkeys(columns, 0)
        for file in metadata.files:
            held = [
                (column_of[i], at) for i, at in zip(file.fields, file.column_indices, strict=True) if i in column_of
            ]
            if held:
                sizes = self._sizes_of_columns(file.path)
                for name, at in held:
                    found[name] += sizes[at] if at >= 0 else 0
        return found

    def _sizes_of_columns(self, name: str) -> Sequence[int]:
        """Return the stored bytes of each column of a data file, by its index in the file.  Only the file's footer is
        read."""
        with self._reading(f"reading the footer of data file {name}"):
            columns = self._files().open_reader(data_file(name)).metadata().columns
        return [sum(buffer.size for page in column.pages for buffer in page.buffers) for column in columns]

    def index_file(self, name: str) -> LanceFileReader:
        """Open a file of an index.  ``name``: its path within the table's folder of indexes."""
        with self._reading(f"reading index file {name}"):
            return self._files().open_reader(f"{INDICES}{name}")

    def _reading(self, act: str) -> AbstractContextManager[None]:
        """Translate Lance's errors of a read of this version that asks for no column and no index by name."""
        return reading(f"{act} of version {self.version}", names_nothing=True)

    def write_widened(self, fragment_id: int, schema: pa.Schema, field_ids: Mapping[str, Sequence[int]]) -> str:
        own = RowSchema(
            pa.schema([self.schema.field(name) for name in schema.names]),
            (),
            (),
            tuple(self.field_ids[name] for name in schema.names),
        )
        wider = carry(own, RowSchema(schema, (), (), own.ids))
        if wider is None:
            raise RewriteFailed(f"columns {schema.names} of version {self.version} cannot become {list(schema.types)}")
        rows = (pa.Table.from_batches([batch]) for batch in self.all_rows(fragment_id, schema.names))
        values = (pa.Table.from_arrays(wider.columns(batch), schema=schema) for batch in rows)
        act = f"wider columns {schema.names} of fragment {fragment_id} of version {self.version}"
        with _rewriting(act, self.version):
            return self._write_file(act, values, schema, field_ids, self.fragment_json(fragment_id))

    def write_columns(self, fragment_id: int, rows: npt.NDArray[np.int64], values: pa.Table, fragment_json: str) -> str:
        act = f"columns {values.column_names} of fragment {fragment_id} of version {self.version}"
        batches = self.all_rows(fragment_id, values.column_names)
        schema = pa.schema([self.schema.field(column) for column in values.column_names])
        with _rewriting(act, self.version):
            new = overlaid(batches, rows, values.cast(schema))
            return self._write_file(act, new, schema, self.field_ids, fragment_json)

    def _write_file(
        self,
        act: str,
        rows: Iterable[pa.Table],
        schema: pa.Schema,
        field_ids: Mapping[str, Sequence[int]],
        fragment_json: str,
    ) -> str:
        """Write a data file with the columns of ``schema`` for a fragment, and return the fragment's JSON with it.

        ``rows`` are the values of all physical rows."""
        with writing(f"writing {act}"):
            written = write_column_file(
                self._dataset, field_ids, schema, rows, json.loads(fragment_json), self._files()
            )
        return json.dumps(written)


@contextmanager
def _rewriting(act: str, version: TableVersion) -> Iterator[None]:
    """Turn Lance's errors of a write into ``RewriteFailed``.  If the store is unavailable, raise
    ``StoreUnavailable``."""
    try:
        yield
    except (OSError, RuntimeError, TypeError, ValueError, WriteFailed) as error:
        told = write_error(error, f"writing {act}") if isinstance(error, OSError) else error
        if isinstance(told, StoreUnavailable):
            raise told from error
        raise RewriteFailed(f"{act} could not be rewritten: {first_line(error)}", version=version) from error


def _fragment(metadata: Any) -> Fragment:
    deletion = metadata.deletion_file
    return Fragment(
        metadata.id,
        # ``path`` makes a class at each call (Lance 14), 12 us and garbage, and its value is an instance of that.
        tuple(f._path for f in metadata.files),
        metadata.physical_rows,
        metadata.num_deletions,
        sum(f.file_size_bytes or 0 for f in metadata.files),
        # An overlay lays other values over some rows of a file: no file alone holds a column then.
        tuple(() if metadata.overlays else tuple(f.fields) for f in metadata.files),
        None if deletion is None else f"{deletion.read_version}-{deletion.id}",
    )


def _fragments_ahead(fragments: Sequence[Fragment]) -> int:
    """Return how many fragments a scan reads at the same time: 2 to 16, fewer the larger they are.

    Many small fragments are read together, since each costs a request or two first."""
    nbytes = max(sum(f.nbytes for f in fragments) // max(len(fragments), 1), 1)
    return min(max(_READ_AHEAD_BYTES // (2 * nbytes), 2), 16)


def _of_live_rows(batch: pa.RecordBatch, mask: RowMask | None, with_row_address: bool) -> pa.RecordBatch:
    """Return the rows of ``batch`` that are live and that ``mask`` keeps, without the row ids.

    A deleted row has no row id."""
    kept = batch
    live: npt.NDArray[np.bool_] | None = None
    if _ROW_ID in batch.schema.names:
        ids = batch.column(_ROW_ID)
        kept = kept.drop_columns([_ROW_ID])
        if ids.null_count:
            live = np.asarray(ids.is_valid().to_numpy(zero_copy_only=False))
    if mask is not None:
        shown = mask.kept(np.asarray(batch.column(ROW_ADDRESS).fill_null(0)))  # of a deleted row Lance says none
        live = shown if live is None else live & shown
        kept = kept if with_row_address else kept.drop_columns([ROW_ADDRESS])
    return kept if live is None or live.all() else kept.filter(pa.array(live))


def field_ids_of(fields: Sequence[Any]) -> list[int]:
    return [i for f in fields for i in (f.id(), *field_ids_of(f.children()))]
