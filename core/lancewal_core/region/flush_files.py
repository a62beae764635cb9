"""Files of flushes.  A flush has data files of the table and up to three small objects, for one or more flushed
MemTables.

* Rows: Lance data files in the table's own data folder, referred to by no version until a merge adopts them.
* ``deletes.arrow``: primary keys in state Gone; ``patches.arrow``: Partial rows (an Arrow IPC stream for each
  generation that has some, one after the other).
* ``manifest.json`` (``flushes.manifest``): names all of these, and the share of each generation, with sizes and crc32c.
  Only Lance reads the data files, so for these the manifest has the checksum of each generation's keys
  (``key_checksum``): a changed key would hide another key's row.

Each attempt writes into a folder of its own, so no two attempts write the same object.  The compare-and-swap to FLUSHED
keeps one of them.  A reader gets what was folded, or an error that names the object, ``ObjectMissing`` or
``ObjectCorrupt``.  One kind of damage is not found: a value outside the key in a data file, changed so that it still
decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import google_crc32c
import pyarrow as pa

from lancewal_core.errors import FLUSH_DAMAGED, Corrupt, ObjectCorrupt, ObjectMissing, or_corrupt, or_raised
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Region
from lancewal_core.names.paths import FlushFile
from lancewal_core.process.failpoints import points
from lancewal_core.process.library_errors import first_line
from lancewal_core.process.tasks import Tasks, together
from lancewal_core.region.flushes.key_checksum import key_sum
from lancewal_core.region.flushes.manifest import (
    Flush,
    FlushedGeneration,
    FlushPart,
    SideFile,
    Stretch,
    by_flush,
    encode_flush,
    read_flush,
)
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.state import GenerationRecord
from lancewal_core.rows.fold import Folded, partial_schema
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.arrow_message import LZ4_RATIO_MAX, declared_stream
from lancewal_core.store.object_kinds import SIDE_FILE_ROWS_BYTES_MAX, check_unpacked, check_written
from lancewal_core.store.object_store import Lost, ObjectStore, put_new
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import StoredTable, files_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Content:
    """Content of a generation: the fold of its entries."""

    folded: Folded
    repaired: bool = False
    """True if ``lancewal repair segment`` made the content (``FlushPart.repaired``)."""
    contract: Contract | None = None
    """Contract whose columns the rows have: the newest one that the entries name.  None: the table's contract."""


@dataclass(frozen=True, slots=True)
class Flushable:
    """A generation that has ended, and its content."""

    region: Region
    record: GenerationRecord
    content: Content


def write_flush(opened: OpenedTable, flushable: Sequence[Flushable], name: str) -> Flush:
    """Write the content of generations in two rounds of requests, the manifest last; return their common flush.

    ``name`` must be new for each attempt.  All contents must have the columns of one contract."""
    for one in flushable:
        if one.record.next is None:
            raise ValueError(f"generation {one.record.generation} of {one.region.name} is still OPEN")
    manifest = paths.flush_file(name, FlushFile.MANIFEST)
    named = ({"region": f.region.name, "generation": f.record.generation, "object": manifest} for f in flushable)
    folded = [one.content.folded for one in flushable]
    contract = flushable[0].content.contract or opened.contract
    rows = [one.rows for one in folded if one.rows.num_rows]

    def write_rows() -> tuple[str, ...]:
        return opened.table.write_rows(pa.concat_tables(rows), contract.fields_of) if rows else ()

    def write_side(side: tuple[FlushFile, Sequence[pa.Table]]) -> Sequence[Stretch | None]:
        file, tables = side
        return _put_side(opened.store, paths.flush_file(name, file), tables)

    sides = [(FlushFile.DELETES, [f.gone for f in folded]), (FlushFile.PATCHES, [f.partials for f in folded])]
    with points("snapshot.write", named):
        fragments, stretches = together(opened.tasks, write_rows, lambda: opened.tasks.map(write_side, sides))
        parts = tuple(_part(*of) for of in zip(flushable, *stretches, strict=True))
        flush = Flush(manifest, contract.version, fragments, parts)
        _put(opened.store, manifest, encode_flush(flush))
    return flush


def _part(one: Flushable, deletes: Stretch | None, patches: Stretch | None) -> FlushPart:
    record, folded = one.record, one.content.folded
    assert record.next is not None, "it has ended"
    return FlushPart(
        region=one.region,
        generation=record.generation,
        first=record.first,
        next=record.next,
        rows=folded.rows.num_rows,
        deletes=deletes,
        patches=patches,
        keys_crc32c=key_sum(folded.rows.select(folded.gone.column_names)),
        sealed_at_ms=record.sealed_at_ms,
        record_times=record.record_times,
        repaired=one.content.repaired,
    )


def read_flushes(store: ObjectStore, tasks: Tasks, keys: Collection[str]) -> dict[str, Flush | Corrupt]:
    """Return each manifest by its key, or the error of a damaged one.  Manifests are read side by side, each once."""
    wanted = sorted(keys)
    found = tasks.map(lambda key: or_corrupt(lambda: read_flush(store, key)), wanted) if wanted else ()
    return dict(zip(wanted, found, strict=True))


def read_each(
    opened: OpenedTable,
    generations: Sequence[tuple[Region, GenerationRecord]],
    read: Callable[[Sequence[FlushedGeneration]], Sequence[T | Corrupt]],
) -> list[T | Corrupt | None]:
    """Return the result of ``read`` for the flush of each generation; None for a generation that names no flush.

    Manifests are read in one round and contents in another.  A flush that generations share is read once.  ``read``
    gets the parts of one flush, in the order of the flush, and returns a result or an error for each part.  A fault
    of one generation affects only its own result.
    """
    flushes = read_flushes(opened.store, opened.tasks, {r.flush for _, r in generations if r.flush is not None})
    answers: dict[tuple[Region, Generation], T | Corrupt] = {}
    named = []
    for region, record in generations:
        if record.flush is not None:
            try:
                named.append(or_raised(flushes[record.flush]).generation_of(region, record.generation))
            except Corrupt as error:
                answers[region, record.generation] = error
    runs = by_flush(named)
    for parts, found in zip(runs, opened.tasks.map(read, runs) if runs else (), strict=True):
        answers.update(zip(((part.region, part.generation) for part in parts), found, strict=True))
    return [answers.get((region, record.generation)) for region, record in generations]


def _scanned(
    table: StoredTable, run: Sequence[FlushedGeneration], columns: Sequence[str], schema: RowSchema
) -> pa.Table:
    """Return the rows of parts that follow one another in a flush."""
    first, last = run[0], run[-1]
    wanted = pa.schema([schema.table.field(name) for name in columns])
    own = range(first.rows_from, last.rows_from + last.rows)
    try:
        batches = [b.cast(wanted) for b in table.read_unadopted(first.fragments, columns, own)]
        return pa.Table.from_batches(batches, wanted)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise _damaged(first, f"do not hold the table's columns: {first_line(error)}") from error


def _damaged(flushed: FlushedGeneration, problem: str) -> ObjectCorrupt:
    """Return the error for the data files of a flush."""
    return ObjectCorrupt(f"data files of {flushed.key} {problem}; {FLUSH_DAMAGED}", object=flushed.key)


def _own_rows(flushed: FlushedGeneration, read: pa.Table, schema: RowSchema) -> pa.Table:
    """Return ``read`` if it is what was written for the part; else raise ``ObjectCorrupt``."""
    name = flushed.region.name
    for field in read.schema:
        if not field.nullable and read.column(field.name).null_count:
            raise _damaged(flushed, f"hold nulls in column {field.name!r}")
    if read.num_rows != flushed.rows:
        raise _damaged(flushed, f"hold {read.num_rows} rows of region {name} instead of {flushed.rows}")
    if key_sum(read.select(schema.key.names)) != flushed.keys_crc32c:
        files = ", ".join(sorted(files_of(flushed.fragments)))
        raise _damaged(flushed, f"({files}) hold other keys of region {name} than were written")
    return read


def read_folded(store: ObjectStore, table: StoredTable, flushed: FlushedGeneration, schema: RowSchema) -> Folded:
    """Return the whole content of a flushed generation."""
    (content,) = read_parts(store, table, [flushed], schema.table.names, schema)
    return or_raised(content)


def read_parts(
    store: ObjectStore,
    table: StoredTable,
    parts: Sequence[FlushedGeneration],
    columns: Sequence[str],
    schema: RowSchema,
) -> list[Folded | Corrupt]:
    """Return the content of parts of one flush, with these columns of their rows.

    ``columns`` must include the primary key.  The parts must be in the order of the flush (``by_flush``).  Each
    object is read once.  If a fault can be traced to one part, it is the answer of that part alone.  Otherwise it is
    the answer of each part that the object serves.
    """
    gone = read_gone_of(store, parts, schema)
    partials = _sides(store, parts, [part.patches for part in parts], partial_schema(schema))
    rows = [found for run in _runs(parts) for found in _rows_of_run(table, run, columns, schema)]
    return [_folded(*found) for found in zip(rows, gone, partials, strict=True)]


def read_gone_of(store: ObjectStore, parts: Sequence[FlushedGeneration], schema: RowSchema) -> list[pa.Table | Corrupt]:
    """Return the Gone keys of each part, or the fault.  The parts must be in the order of their flush; their one object
    is read once."""
    return _sides(store, parts, [part.deletes for part in parts], schema.key)


def check_sides(store: ObjectStore, parts: Sequence[FlushedGeneration], schema: RowSchema) -> list[Corrupt | None]:
    """Check the deletes and patches of parts of one flush, in its order; return for each part its fault or None.  Each
    object is read once."""
    gone = read_gone_of(store, parts, schema)
    partials = _sides(store, parts, [part.patches for part in parts], partial_schema(schema))
    found = [first if isinstance(first, Corrupt) else other for first, other in zip(gone, partials, strict=True)]
    return [error if isinstance(error, Corrupt) else None for error in found]


def _folded(rows: pa.Table | Corrupt, gone: pa.Table | Corrupt, partials: pa.Table | Corrupt) -> Folded | Corrupt:
    for found in (gone, partials, rows):
        if isinstance(found, Corrupt):
            return found
    return Folded(rows, gone, partials)


def _runs(parts: Sequence[FlushedGeneration]) -> list[list[FlushedGeneration]]:
    """Group parts whose rows follow one another."""
    runs: list[list[FlushedGeneration]] = []
    for part in parts:
        if runs and runs[-1][-1].rows_from + runs[-1][-1].rows == part.rows_from:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def _rows_of_run(
    table: StoredTable, run: Sequence[FlushedGeneration], columns: Sequence[str], schema: RowSchema
) -> list[pa.Table | Corrupt]:
    try:
        read = _scanned(table, run, columns, schema)
        starts = [part.rows_from - run[0].rows_from for part in run]
        return [_own_rows(part, read.slice(start, part.rows), schema) for part, start in zip(run, starts, strict=True)]
    except Corrupt as error:
        if len(run) == 1 or isinstance(error, ObjectMissing):
            return [error] * len(run)
    return [found for part in run for found in _rows_of_run(table, [part], columns, schema)]


def _sides(
    store: ObjectStore, parts: Sequence[FlushedGeneration], sides: Sequence[SideFile | None], schema: pa.Schema
) -> list[pa.Table | Corrupt]:
    """Return the rows of each part in one side file, or the fault."""
    named = [side for side in sides if side is not None]
    if not named:
        return [schema.empty_table()] * len(parts)
    start, end = min(side.start for side in named), max(side.start + side.size for side in named)
    try:
        data = store.get_range(named[0].key, start, end)
    except Corrupt as error:
        return [schema.empty_table() if side is None else error for side in sides]

    def decoded(side: SideFile) -> pa.Table:
        own = data if data is None else data[side.start - start : side.start - start + side.size]
        return _decoded_side(own, side, schema)

    return [schema.empty_table() if side is None else or_corrupt(partial(decoded, side)) for side in sides]


def _put_side(store: ObjectStore, key: str, tables: Sequence[pa.Table]) -> Sequence[Stretch | None]:
    """Write one object with a stream of each table that has rows.  Return the share of each table in it, None for an
    empty table."""
    streams = [side_stream(table) if table.num_rows else b"" for table in tables]
    check_written(key, sum(map(len, streams)))
    check_unpacked(key, sum(declared_stream(pa.py_buffer(s)).raw_bytes for s in streams if s))
    if any(streams):
        _put(store, key, b"".join(streams))
    return [
        Stretch(table.num_rows, len(stream), google_crc32c.value(stream)) if stream else None
        for table, stream in zip(tables, streams, strict=True)
    ]


def side_stream(content: pa.Table) -> bytes:
    """Return rows as one stream of a side file, compressed with lz4."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, content.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(content)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _decoded_side(data: bytes | None, file: SideFile, schema: pa.Schema) -> pa.Table:
    if data is None:
        raise ObjectMissing(f"{file.key} is missing", object=file.key)
    if len(data) != file.size or google_crc32c.value(data) != file.crc32c:
        raise ObjectCorrupt(f"{file.key} is corrupt: its checksum does not match; {FLUSH_DAMAGED}", object=file.key)
    return decode_side(data, file, schema)


def decode_side(data: bytes, file: SideFile, schema: pa.Schema) -> pa.Table:
    """Return the rows of one stream of a side file.  Raises ``ObjectCorrupt`` unless they are as ``file`` and
    ``schema`` say.

    Memory is bounded as in ``side_rows``.
    """
    try:
        return with_columns(side_rows(data, file.rows), schema)
    except (ObjectCorrupt, pa.ArrowException, ValueError, TypeError, OSError) as error:
        raise ObjectCorrupt(f"{file.key} is corrupt: {str(error)[:300]}; {FLUSH_DAMAGED}", object=file.key) from error


def with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return ``rows``, cast to the types of ``schema``.  Raises ``ObjectCorrupt``, or an error of Arrow, if they have
    other columns, or nulls where the schema allows none."""
    if rows.schema.names != schema.names:
        raise ObjectCorrupt(f"it has the columns {rows.schema.names} instead of {schema.names}")
    found = rows.cast(schema)
    found.validate(full=True)
    for field in schema:
        if not field.nullable and found.column(field.name).null_count:
            raise ObjectCorrupt(f"column {field.name!r} holds nulls")
    return found


def side_rows(data: bytes, rows: int | None = None) -> pa.Table:
    """Return the ``rows`` rows of one stream of a side file.  With None, any number of rows is accepted.

    Raises ``ObjectCorrupt``, or an error of Arrow, before anything is decompressed whose declared size is impossible
    for the stream's bytes, or is above ``SIDE_FILE_ROWS_BYTES_MAX``.
    """
    declared = declared_stream(pa.py_buffer(data))
    if declared.raw_bytes > min(LZ4_RATIO_MAX * len(data), SIDE_FILE_ROWS_BYTES_MAX):
        raise ObjectCorrupt(
            f"a side file of {len(data)} bytes declares {declared.raw_bytes} bytes of rows, which is too much for its "
            "size"
        )
    if rows is not None and declared.rows != rows:
        raise ObjectCorrupt(f"a side file declares {declared.rows} rows, but the flush's manifest says {rows}")
    with pa.ipc.open_stream(data) as reader:
        read = reader.read_all()
    read.validate(full=True)
    return read


def _put(store: ObjectStore, key: str, data: bytes) -> None:
    """Put an object of a flush.  If the outcome is unknown, ``StoreUnavailable`` ends this attempt.  The next attempt
    writes into another folder."""
    if isinstance(put_new(store, key, data), Lost):
        raise ObjectCorrupt(
            f"another object lies at {key}, in a folder whose random name only this attempt to write a flush knows",
            object=key,
        )
