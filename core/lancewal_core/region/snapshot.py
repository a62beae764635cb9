"""A snapshot: a flushed MemTable, as data files of the table and up to three small objects.

* Rows: Lance data files in the table's own data folder, referred to by no version until a merge adopts them.
* ``deletes.arrow``: primary keys in state Gone; ``patches.arrow``: Partial rows (an Arrow IPC stream each).
* ``snapshot.json``: names all of these, with sizes and crc32c, and carries a crc32c of its own content; of the data files,
  which only Lance reads, it has the sum of their keys (``key_checksum``): another key would hide another row.

Each attempt writes into a folder of its own, so attempts never meet; the compare-and-swap to FLUSHED keeps one.
A reader gets what was folded, or ``ObjectMissing`` / ``ObjectCorrupt`` naming the object.  Not covered: a value of a data file
beside the key that was changed so that it still decodes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import google_crc32c
import pyarrow as pa

from lancewal_core import paths
from lancewal_core.errors import SNAPSHOT_DAMAGED, FormatUnknown, ObjectCorrupt, ObjectMissing
from lancewal_core.ids import Generation, Position, Region
from lancewal_core.paths import SnapshotFile
from lancewal_core.process.failpoints import point
from lancewal_core.process.library_errors import first_line
from lancewal_core.region.index import GenerationRecord
from lancewal_core.region.key_checksum import key_sum
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.region.snapshot_fragment import fragment_text
from lancewal_core.region.u64_segment import U64Segment, decode_u64_segment, encode_u64_segment
from lancewal_core.rows.fold import Folded, partial_schema
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.arrow_message import LZ4_RATIO_MAX, declared_stream
from lancewal_core.store.json_object import WHOLE_MAX, JsonFault, JsonObject, region_named
from lancewal_core.store.object_kinds import SIDE_FILE_ROWS_BYTES_MAX
from lancewal_core.store.object_limits import check_unpacked
from lancewal_core.store.object_store import Lost, ObjectStore, put_new
from lancewal_core.table.protocol import Table, files_of, fragment_bytes

FORMAT = 1


@dataclass(frozen=True, slots=True)
class SideFile:
    """One object of a snapshot beside its rows."""

    key: str
    rows: int
    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Content:
    """What the entries of a generation come to."""

    folded: Folded
    entries: Sequence[int]
    """Their ids, which are their first positions."""
    repaired: bool = False
    """``Snapshot.repaired``."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What ``snapshot.json`` says.  ``rows_bytes`` counts the data files."""

    key: str
    region: Region
    generation: Generation
    first: Position
    next: Position
    contract_version: int
    fragments: tuple[str, ...]
    rows: int
    rows_bytes: int
    deletes: SideFile | None
    patches: SideFile | None
    keys_crc32c: int
    """Of the rows' keys."""
    wal_entries: U64Segment
    """Ids of the entries that it was folded from: for who writes the MemWAL message, whose field it is."""
    sealed_at_ms: int | None = None
    record_times: RecordTimes | None = None
    """This and the one above as the generation's record has them."""
    repaired: bool = False
    """Made by ``lancewal repair segment``: the log does not have all that it was folded from."""

    @property
    def changes(self) -> int:
        """Number of keys that the generation touches."""
        return self.rows + (self.deletes.rows if self.deletes else 0) + (self.patches.rows if self.patches else 0)

    @property
    def nbytes(self) -> int:
        """Stored bytes of its content."""
        return self.rows_bytes + (self.deletes.size if self.deletes else 0) + (self.patches.size if self.patches else 0)


def write_snapshot(
    opened: OpenedTable,
    region: Region,
    record: GenerationRecord,
    content: Content,
    attempt: str,
) -> Snapshot:
    """Write what a SEALED generation comes to.  ``attempt``: 8 hex digits, new for each attempt."""
    folded = content.folded
    if record.next is None:
        raise ValueError(f"generation {record.generation} of {region.name} is still OPEN")
    manifest = paths.snapshot_file(region, record.generation, attempt, SnapshotFile.MANIFEST)
    with point("snapshot.write", region=region.name, generation=record.generation, object=manifest):
        fragments = opened.table.write_rows(folded.rows, opened.contract.fields_of) if folded.rows.num_rows else ()
        sides: dict[SnapshotFile, SideFile | None] = {}
        for file, rows in ((SnapshotFile.DELETES, folded.gone), (SnapshotFile.PATCHES, folded.partials)):
            sides[file] = None
            if rows.num_rows:
                key = paths.snapshot_file(region, record.generation, attempt, file)
                sides[file] = _put_side(opened.store, key, rows)
        snapshot = Snapshot(
            key=manifest,
            region=region,
            generation=record.generation,
            first=record.first,
            next=record.next,
            contract_version=opened.contract.version,
            fragments=fragments,
            rows=folded.rows.num_rows,
            rows_bytes=sum(fragment_bytes(f) for f in fragments),
            deletes=sides[SnapshotFile.DELETES],
            patches=sides[SnapshotFile.PATCHES],
            keys_crc32c=key_sum(folded.rows.select(folded.gone.column_names)),
            wal_entries=U64Segment.of(content.entries),
            sealed_at_ms=record.sealed_at_ms,
            record_times=record.record_times,
            repaired=content.repaired,
        )
        _put(opened.store, manifest, encode_snapshot(snapshot))
    return snapshot


def read_snapshot(store: ObjectStore, key: str) -> Snapshot:
    """Read ``snapshot.json``; ``ObjectMissing``, ``ObjectCorrupt`` or ``FormatUnknown`` name it."""
    data = store.get(key)
    if data is None:
        raise ObjectMissing(f"{key} is missing", object=key)
    return decode_snapshot(data, key)


def decode_snapshot(data: bytes, key: str) -> Snapshot:
    """Inverse of ``encode_snapshot``; ``ObjectCorrupt``, also when the key is another snapshot's, or ``FormatUnknown``.

    Its side files lie in its own folder, its data files in the table's: no name in it leads elsewhere.
    """
    try:
        outer = JsonObject.parse(data)
        content = outer.inner("snapshot")
        if google_crc32c.value(_canonical(content.members)) != outer.whole("crc32c"):
            raise JsonFault("its checksum does not match")
        if content.whole("format") != FORMAT:
            raise FormatUnknown(
                f"{key}: flush format {content.whole('format')} is not read by this release", object=key
            )
        return _snapshot(content, key)
    except (JsonFault, RecursionError) as error:
        raise ObjectCorrupt(f"{key} is corrupt: {error}; {SNAPSHOT_DAMAGED}", object=key) from error


def _snapshot(content: JsonObject, key: str) -> Snapshot:
    of = paths.parse_snapshot_file(key)
    region, generation = region_named(content.text("region")), Generation(content.whole("generation", low=1))
    if of is None or (of[0], of[1], of[3]) != (region, generation, SnapshotFile.MANIFEST):
        raise JsonFault(f"it is the flush of generation {generation} of region {region.name}")
    first = content.whole("first")
    next_ = content.whole("next", low=first)
    repaired = "repaired" in content.members
    if repaired and content.raw("repaired") is not True:
        raise JsonFault("its 'repaired' is not true")
    return Snapshot(
        key=key,
        region=region,
        generation=generation,
        first=Position(first),
        next=Position(next_),
        contract_version=content.whole("contract_version", low=1),
        fragments=tuple(fragment_text(f) for f in content.values("fragments")),
        rows=content.whole("rows"),
        rows_bytes=content.whole("rows_bytes"),
        deletes=_side(content, "deletes", paths.snapshot_file(region, generation, of[2], SnapshotFile.DELETES)),
        patches=_side(content, "patches", paths.snapshot_file(region, generation, of[2], SnapshotFile.PATCHES)),
        keys_crc32c=content.whole("keys_crc32c", high=2**32 - 1),
        wal_entries=_entries(content, range(first, next_), key),
        sealed_at_ms=content.whole_or_null("sealed_at_ms"),
        record_times=_record_times(content),
        repaired=repaired,
    )


def _entries(content: JsonObject, positions: range, key: str) -> U64Segment:
    try:
        entries = decode_u64_segment(base64.b64decode(content.text("wal_entries"), validate=True), key)
    except ValueError as error:
        raise JsonFault("its 'wal_entries' is no base64") from error
    except ObjectCorrupt as error:
        raise JsonFault(f"its 'wal_entries': {str(error).removeprefix(f'{key}: ')}") from error
    if len(entries) and not (entries.first in positions and entries.last in positions):
        raise JsonFault(f"its entries {entries.first} to {entries.last} lie outside its positions")
    return entries


def _record_times(content: JsonObject) -> RecordTimes | None:
    lowest, highest = "record_time_min_ms", "record_time_max_ms"
    if content.raw(lowest) is None and content.raw(highest) is None:
        return None
    min_ms = content.whole(lowest, low=-WHOLE_MAX - 1)
    return RecordTimes(min_ms, content.whole(highest, low=min_ms))


def _side(content: JsonObject, name: str, key: str) -> SideFile | None:
    side = content.optional(name)
    if side is None:
        return None
    if side.text("key") != key:
        raise JsonFault(f"its {name} lie elsewhere than beside it")
    return SideFile(key, side.whole("rows"), side.whole("size"), side.whole("crc32c"))


def read_rows(table: Table, snapshot: Snapshot, columns: Sequence[str], schema: RowSchema) -> pa.Table:
    """Rows in state Row, these columns of them."""
    wanted = pa.schema([schema.table.field(name) for name in columns])
    try:
        batches = [b.cast(wanted) for b in table.read_unadopted(snapshot.fragments, columns)]
        read = pa.Table.from_batches(batches, wanted)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise ObjectCorrupt(
            f"data files of {snapshot.key} do not hold the table's columns: {first_line(error)}; {SNAPSHOT_DAMAGED}",
            object=snapshot.key,
        ) from error
    for field in wanted:
        if not field.nullable and read.column(field.name).null_count:
            raise ObjectCorrupt(
                f"data files of {snapshot.key} hold nulls in {field.name!r}; {SNAPSHOT_DAMAGED}", object=snapshot.key
            )
    if read.num_rows != snapshot.rows:
        raise ObjectCorrupt(
            f"data files of {snapshot.key} hold {read.num_rows} rows instead of {snapshot.rows}; {SNAPSHOT_DAMAGED}",
            object=snapshot.key,
        )
    keys = schema.key.names
    if key_sum(read.select(keys)) != snapshot.keys_crc32c:
        raise ObjectCorrupt(
            f"data files of {snapshot.key} ({', '.join(sorted(files_of(snapshot.fragments)))}) hold other keys than were "
            f"written; {SNAPSHOT_DAMAGED}",
            object=snapshot.key,
        )
    return read


def read_gone(store: ObjectStore, snapshot: Snapshot, schema: RowSchema) -> pa.Table:
    """Keys in state Gone."""
    return schema.key.empty_table() if snapshot.deletes is None else _read_side(store, snapshot.deletes, schema.key)


def read_partials(store: ObjectStore, snapshot: Snapshot, schema: RowSchema) -> pa.Table:
    """Rows in state Partial."""
    wanted = partial_schema(schema)
    return wanted.empty_table() if snapshot.patches is None else _read_side(store, snapshot.patches, wanted)


def read_folded(store: ObjectStore, table: Table, snapshot: Snapshot, schema: RowSchema) -> Folded:
    """The whole content."""
    return Folded(
        read_rows(table, snapshot, schema.table.names, schema),
        read_gone(store, snapshot, schema),
        read_partials(store, snapshot, schema),
    )


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """``snapshot.json`` as bytes."""
    low, high = snapshot.record_times or (None, None)
    content = {
        "format": FORMAT,
        "region": snapshot.region.name,
        "generation": snapshot.generation,
        "first": snapshot.first,
        "next": snapshot.next,
        "contract_version": snapshot.contract_version,
        "fragments": [json.loads(f) for f in snapshot.fragments],
        "rows": snapshot.rows,
        "rows_bytes": snapshot.rows_bytes,
        "deletes": None if snapshot.deletes is None else asdict(snapshot.deletes),
        "patches": None if snapshot.patches is None else asdict(snapshot.patches),
        "keys_crc32c": snapshot.keys_crc32c,
        "wal_entries": base64.b64encode(encode_u64_segment(snapshot.wal_entries)).decode(),
        "sealed_at_ms": snapshot.sealed_at_ms,
        "record_time_min_ms": low,
        "record_time_max_ms": high,
        **({"repaired": True} if snapshot.repaired else {}),
    }
    return json.dumps({"snapshot": content, "crc32c": google_crc32c.value(_canonical(content))}, indent=1).encode()


def _canonical(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _put_side(store: ObjectStore, key: str, content: pa.Table) -> SideFile:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, content.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(content)
    data = sink.getvalue().to_pybytes()
    check_unpacked(key, declared_stream(pa.py_buffer(data)).raw_bytes)
    _put(store, key, data)
    return SideFile(key, content.num_rows, len(data), google_crc32c.value(data))


def _read_side(store: ObjectStore, file: SideFile, schema: pa.Schema) -> pa.Table:
    data = store.get(file.key)
    if data is None:
        raise ObjectMissing(f"{file.key} is missing", object=file.key)
    if len(data) != file.size or google_crc32c.value(data) != file.crc32c:
        raise ObjectCorrupt(f"{file.key} is corrupt: its checksum does not match; {SNAPSHOT_DAMAGED}", object=file.key)
    return decode_side(data, file, schema)


def decode_side(data: bytes, file: SideFile, schema: pa.Schema) -> pa.Table:
    """Rows of a side file whose checksum matches; ``ObjectCorrupt`` unless they are what ``file`` and ``schema`` say.

    Its memory is bounded as that of ``side_rows``.
    """
    try:
        read = side_rows(data, file.rows)
        if read.schema.names != schema.names:
            raise ObjectCorrupt(f"its columns are not {schema.names}")
        found = read.cast(schema)
        found.validate(full=True)
    except (ObjectCorrupt, pa.ArrowException, ValueError, TypeError, OSError) as error:
        raise ObjectCorrupt(
            f"{file.key} is corrupt: {str(error)[:300]}; {SNAPSHOT_DAMAGED}", object=file.key
        ) from error
    for field in schema:
        if not field.nullable and found.column(field.name).null_count:
            raise ObjectCorrupt(
                f"{file.key} is corrupt: {field.name!r} holds nulls; {SNAPSHOT_DAMAGED}", object=file.key
            )
    return found


def side_rows(data: bytes, rows: int | None = None) -> pa.Table:
    """The ``rows`` rows of a side file, as its stream has them.

    ``ObjectCorrupt``, or an error of Arrow, before anything is decompressed that its bytes could not hold, or that is more
    than ``SIDE_FILE_ROWS_BYTES_MAX``.
    """
    declared = declared_stream(pa.py_buffer(data))
    if declared.raw_bytes > min(LZ4_RATIO_MAX * len(data), SIDE_FILE_ROWS_BYTES_MAX):
        raise ObjectCorrupt(f"its {len(data)} bytes declare {declared.raw_bytes} bytes of rows")
    if rows is not None and declared.rows != rows:
        raise ObjectCorrupt(f"it declares {declared.rows} rows, not {rows}")
    with pa.ipc.open_stream(data) as reader:
        read = reader.read_all()
    read.validate(full=True)
    return read


def _put(store: ObjectStore, key: str, data: bytes) -> None:
    """Without a verdict the attempt is given up; another one writes into another folder."""
    if isinstance(put_new(store, key, data), Lost):
        raise ObjectCorrupt(f"{key} is taken, though its folder was made for one attempt", object=key)
