"""WAL segments and fences as bytes.

A segment is what one ingest process consumed between two PUTs: one *entry* for each region that had records.  A fence
has the key of a segment but no rows: it ends the log.  Layout of the object, integers little endian::

    body       one Arrow IPC stream, lz4: schema, one record batch for each entry, end mark   (nothing in a fence)
    table      protobuf ``WalSegmentTable``: log, sequence, writer; byte range and crc32c of the schema and of each
               entry's record batch with its region, positions and rejected records
    footer     body length u64, table length u32, table crc32c u32, format version u32,
               crc32c of these 20 bytes u32, magic ``LWAL``

Promises:

1. ``decode_segment(encode_segment(s, schema), key) == s``, and one segment gives equal bytes each time.
2. The body alone is a stream that every Arrow library reads.
3. One region's rows can be read by byte ranges: trailer (table and footer), schema, its record batch.
4. A truncated, changed, mixed up or otherwise malformed object raises ``ObjectCorrupt`` that names it, a later format
   version ``FormatUnknown``; never a crash, never other rows.  Nothing is decompressed that the table's checked sizes
   do not allow, and no more than ``SEGMENT_ROWS_BYTES_MAX`` in all.  With ``regions`` given, the bytes of other regions'
   batches are not looked at.
5. An object is only taken under its own key: log and sequence stand in both.
6. What breaks the rules of an entry (``Segment.check``), or is larger than a segment may be, is neither written nor read.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from lancewal_core import paths
from lancewal_core.errors import ActionNeeded, FormatUnknown, InvalidInput, InvalidSchema, LancewalError, ObjectCorrupt
from lancewal_core.ids import LogId, Position, Region, Sequence
from lancewal_core.proto import wal_segment_pb2
from lancewal_core.rows.schema import OFFSET, SYSTEM_FIELDS
from lancewal_core.store.arrow_message import END_OF_STREAM, LZ4_RATIO_MAX, declared_batch, message_length
from lancewal_core.store.object_kinds import SEGMENT_ROWS_BYTES_MAX, SEGMENT_TRAILER_BYTES_MAX
from lancewal_core.words import NoWord, word

FORMAT_VERSION = 1
MAGIC = b"LWAL"
FOOTER_SIZE = 28
TRAILER_HINT = 16 * 1024
"""Bytes to fetch from an object's end at first: holds the trailer of about 150 entries without rejected records."""

_FOOTER = struct.Struct("<QIIII4s")
_FOOTER_CHECKED = 20

_SHOWN = 300
"""Characters of a text from the object that a message may hold."""

_Table = wal_segment_pb2.WalSegmentTable


@dataclass(frozen=True, slots=True)
class RejectedOffset:
    """A bad record that went to the dead letters instead of into the rows."""

    offset: int
    kind: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The records of one region in one segment: all of ``[first, next)``."""

    region: Region
    first: Position
    """Also the entry's id."""
    next: Position
    contract_version: int
    rows: pa.RecordBatch
    """A WAL batch (``rows.RowSchema.wal``); zero rows still move the position."""
    rejected: tuple[RejectedOffset, ...]
    """Ascending offsets."""

    def check(self) -> None:
        """Raise ``InvalidInput`` unless positions, rejected records and rows fit together."""
        _check_positions(self.region, self.first, self.next, self.contract_version, self.rejected)
        _check_rows(self.region, self.first, self.next, self.rows)


@dataclass(frozen=True, slots=True)
class Segment:
    """One object of a log that holds rows."""

    log: LogId
    sequence: Sequence
    writer: str
    """Owner id of the process that wrote it."""
    entries: tuple[Entry, ...]
    """At most one for each region."""
    written_at_ms: int
    """Milliseconds since 1970, by the writer's clock."""

    def check(self) -> None:
        """Raise ``InvalidInput`` unless every entry is sound, each region has one, and identifiers are words."""
        _check_words(self.writer, (entry.rejected for entry in self.entries))
        _check_once([entry.region for entry in self.entries])
        for entry in self.entries:
            entry.check()


@dataclass(frozen=True, slots=True)
class Fence:
    """The end of a log, put there by another process."""

    log: LogId
    """The log that ends here."""
    sequence: Sequence
    writer: str
    """Owner id of the process that fenced."""
    written_at_ms: int
    writer_log: LogId | None = None
    """The log that this process itself writes, when it has one."""


@dataclass(frozen=True, slots=True)
class Section:
    """A byte range of the object, and the crc32c of its bytes."""

    start: int
    length: int
    checksum: int


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """What the trailer says about an entry."""

    region: Region
    first: Position
    next: Position
    contract_version: int
    row_count: int
    rejected: tuple[RejectedOffset, ...]
    section: Section
    """Its record batch message."""
    raw_bytes: int
    """Size of the record batch's buffers when decompressed."""


@dataclass(frozen=True, slots=True)
class Trailer:
    """All of a segment but its rows."""

    log: LogId
    sequence: Sequence
    writer: str
    written_at_ms: int
    schema: Section
    entries: tuple[EntryHeader, ...]


# -- writing ---------------------------------------------------------------------------------------------------


def encode_segment(segment: Segment, schema: pa.Schema) -> bytes:
    """The segment as an object's bytes.  ``schema`` is that of every entry's rows (``RowSchema.wal``).

    Raises ``InvalidInput`` when ``segment.check()`` does, ``InvalidSchema`` when rows have another schema or one that
    cannot be in a WAL.
    """
    paths.wal_segment(segment.log, segment.sequence)  # Raises when they cannot be a key.
    _check_schema(schema)
    segment.check()
    for entry in segment.entries:
        if not entry.rows.schema.equals(schema):
            raise InvalidSchema(
                f"rows of region {entry.region.name} have the schema {entry.rows.schema}, not the contract's {schema}",
                region=entry.region.name,
            )
    body, ends = _write_stream(segment, schema)
    schema_end = message_length(body.slice(0, 8).to_pybytes())
    content = _Table.Body(schema=_section(body, 0, schema_end))
    for entry, (start, end) in zip(segment.entries, pairwise([schema_end, *ends]), strict=True):
        content.entries.append(_encode_header(entry, body, start, end))
    table = _Table(
        log=segment.log,
        sequence=segment.sequence,
        writer=segment.writer,
        written_at_ms=segment.written_at_ms,
        body=content,
    )
    rows_bytes = sum(entry.raw_bytes for entry in content.entries)
    if rows_bytes > SEGMENT_ROWS_BYTES_MAX or table.ByteSize() > SEGMENT_TRAILER_BYTES_MAX:
        raise InvalidInput(
            f"a WAL segment cannot hold {rows_bytes} bytes of rows and {table.ByteSize()} of sections and rejected records",
            log=segment.log,
        )
    return _assemble(body, table)


def _write_stream(segment: Segment, schema: pa.Schema) -> tuple[pa.Buffer, list[int]]:
    """The body, and where each entry's record batch ends."""
    sink = pa.BufferOutputStream()
    # For people who open the body with an Arrow tool; a reader goes by the table.
    described = schema.with_metadata({"lancewal.log": segment.log, "lancewal.sequence": str(segment.sequence)})
    ends = []
    with pa.ipc.new_stream(sink, described, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for entry in segment.entries:
            writer.write_batch(entry.rows)
            ends.append(sink.tell())
    return sink.getvalue(), ends


def _encode_header(entry: Entry, body: pa.Buffer, start: int, end: int) -> _Table.Entry:
    return _Table.Entry(
        region=entry.region.name,
        first_position=entry.first,
        next_position=entry.next,
        contract_version=entry.contract_version,
        rows=entry.rows.num_rows,
        section=_section(body, start, end),
        raw_bytes=declared_batch(body.slice(start, end - start)).raw_bytes,
        rejected=[_Table.Rejected(offset=r.offset, kind=r.kind) for r in entry.rejected],
    )


def _section(body: pa.Buffer, start: int, end: int) -> _Table.Section:
    checksum = google_crc32c.value(body.slice(start, end - start))
    return _Table.Section(start=start, length=end - start, checksum=checksum)


def encode_fence(fence: Fence) -> bytes:
    """The fence as an object's bytes; raises ``InvalidInput`` when its log or sequence cannot be a key, or its writer or the
    writer's log are no words."""
    paths.wal_segment(fence.log, fence.sequence)
    _check_fence(fence)
    table = _Table(
        log=fence.log,
        sequence=fence.sequence,
        writer=fence.writer,
        written_at_ms=fence.written_at_ms,
        fence=_Table.Fence(writer_log=fence.writer_log),
    )
    return _assemble(pa.py_buffer(b""), table)


def _assemble(body: pa.Buffer, message: _Table) -> bytes:
    table = message.SerializeToString(deterministic=True)
    checked = _FOOTER.pack(body.size, len(table), google_crc32c.value(table), FORMAT_VERSION, 0, MAGIC)
    checked = checked[:_FOOTER_CHECKED]
    return b"".join((body, table, checked, struct.pack("<I", google_crc32c.value(checked)), MAGIC))


# -- reading ---------------------------------------------------------------------------------------------------


def decode_segment(data: bytes, where: str, regions: Collection[Region] | None = None) -> Segment | Fence:
    """Read the object stored under the key ``where``; with ``regions``, only these regions' entries.

    Rows are views of ``data`` or of what was decompressed from it.  Raises ``ObjectCorrupt`` or ``FormatUnknown``.
    """
    trailer = decode_trailer(data, where, len(data))
    if isinstance(trailer, Fence):
        return trailer
    buffer = pa.py_buffer(data)
    wanted = [header for header in trailer.entries if regions is None or header.region in regions]
    body_end = trailer.entries[-1].section if trailer.entries else trailer.schema
    end = buffer.slice(body_end.start + body_end.length, len(END_OF_STREAM))
    if end.to_pybytes() != END_OF_STREAM:
        raise _corrupt(where, "the Arrow stream has no end mark")
    schema = decode_schema(_slice(buffer, trailer.schema), trailer.schema, where)
    return Segment(
        log=trailer.log,
        sequence=trailer.sequence,
        writer=trailer.writer,
        entries=tuple(decode_entry(_slice(buffer, header.section), header, schema, where) for header in wanted),
        written_at_ms=trailer.written_at_ms,
    )


def trailer_length(tail: bytes, where: str) -> int:
    """Length of the trailer in bytes, from the object's last ``FOOTER_SIZE`` bytes or more."""
    _, table_length, _ = _read_footer(tail, where)
    return table_length + FOOTER_SIZE


def decode_trailer(tail: bytes, where: str, object_size: int) -> Trailer | Fence:
    """Read the trailer from the object's last ``trailer_length`` bytes or more.

    ``object_size`` is the size of the whole object, which must be what the trailer says.
    """
    body_length, table_length, checksum = _read_footer(tail, where)
    if body_length + table_length + FOOTER_SIZE != object_size:
        raise _corrupt(where, f"it has {object_size} bytes, not {body_length + table_length + FOOTER_SIZE}")
    if len(tail) < table_length + FOOTER_SIZE:
        raise _corrupt(where, f"its last {len(tail)} bytes do not hold the trailer of {table_length + FOOTER_SIZE}")
    data = bytes(tail[len(tail) - table_length - FOOTER_SIZE : len(tail) - FOOTER_SIZE])
    if google_crc32c.value(data) != checksum:
        raise _corrupt(where, "the section table's checksum does not match")
    message = _Table()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise _corrupt(where, "the section table is not a protobuf message") from error
    if paths.parse_wal_segment(where) != (message.log, message.sequence):
        raise _corrupt(where, f"it is segment {message.sequence} of log {message.log!r}")
    match message.WhichOneof("content"):
        case "fence":
            if body_length:
                raise _corrupt(where, "it is a fence, but has a body")
            return _decode_fence(message, where)
        case "body":
            return _decode_table(message, body_length, where)
        case _:
            raise _corrupt(where, "it is neither a segment nor a fence")


def _read_footer(tail: bytes, where: str) -> tuple[int, int, int]:
    """Body length, table length, table checksum."""
    if len(tail) < FOOTER_SIZE:
        raise _corrupt(where, f"it has only {len(tail)} bytes")
    footer = bytes(tail[-FOOTER_SIZE:])
    body_length, table_length, table_checksum, version, checksum, magic = _FOOTER.unpack(footer)
    if magic != MAGIC:
        raise _corrupt(where, f"it ends with {magic!r} instead of {MAGIC!r}")
    if google_crc32c.value(footer[:_FOOTER_CHECKED]) != checksum:
        raise _corrupt(where, "the footer's checksum does not match")
    if version != FORMAT_VERSION:
        raise FormatUnknown(
            f"{where}: WAL segment format version {version} is not read by this release, which knows "
            f"{FORMAT_VERSION}: update lancewal",
            object=where,
        )
    if table_length > SEGMENT_TRAILER_BYTES_MAX:
        raise _corrupt(where, f"its section table has {table_length} bytes")
    return body_length, table_length, table_checksum


def _decode_fence(message: _Table, where: str) -> Fence:
    fence = Fence(
        log=LogId(message.log),
        sequence=Sequence(message.sequence),
        writer=message.writer,
        written_at_ms=message.written_at_ms,
        writer_log=LogId(message.fence.writer_log) if message.fence.HasField("writer_log") else None,
    )
    try:
        _check_fence(fence)
    except ActionNeeded as error:
        raise _corrupt(where, str(error)) from error
    return fence


def _decode_table(message: _Table, body_length: int, where: str) -> Trailer:
    schema = _decode_section(message.body.schema)
    entries = tuple(_decode_header(entry, where) for entry in message.body.entries)
    end = 0
    for section in (schema, *(header.section for header in entries)):
        if section.start != end or section.length == 0:
            raise _corrupt(where, f"a section of {section.length} bytes starts at {section.start} instead of {end}")
        end += section.length
    if end + len(END_OF_STREAM) != body_length:
        raise _corrupt(where, f"its sections end at {end}, its body at {body_length}")
    try:
        _check_words(message.writer, (header.rejected for header in entries))
        _check_once([header.region for header in entries])
        rows_bytes = sum(header.raw_bytes for header in entries)
        if rows_bytes > SEGMENT_ROWS_BYTES_MAX:
            raise ObjectCorrupt(f"it declares {rows_bytes} bytes of rows, more than any segment holds")
        for header in entries:
            _check_positions(header.region, header.first, header.next, header.contract_version, header.rejected)
    except LancewalError as error:
        raise _corrupt(where, str(error)) from error
    return Trailer(
        log=LogId(message.log),
        sequence=Sequence(message.sequence),
        writer=message.writer,
        written_at_ms=message.written_at_ms,
        schema=schema,
        entries=entries,
    )


def _decode_header(entry: _Table.Entry, where: str) -> EntryHeader:
    section = _decode_section(entry.section)
    if entry.raw_bytes > LZ4_RATIO_MAX * section.length:
        raise _corrupt(where, f"{section.length} bytes cannot hold {entry.raw_bytes} bytes of rows")
    return EntryHeader(
        region=_region(entry.region, where),
        first=Position(entry.first_position),
        next=Position(entry.next_position),
        contract_version=entry.contract_version,
        row_count=entry.rows,
        rejected=tuple(RejectedOffset(rejected.offset, rejected.kind) for rejected in entry.rejected),
        section=section,
        raw_bytes=entry.raw_bytes,
    )


def _decode_section(section: _Table.Section) -> Section:
    return Section(section.start, section.length, section.checksum)


def _region(name: str, where: str) -> Region:
    region = paths.parse_region(name)
    if region is None:
        raise _corrupt(where, f"{name[:_SHOWN]!r} is not a region")
    return region


def decode_schema(data: pa.Buffer | bytes, section: Section, where: str) -> pa.Schema:
    """Schema of the rows, from the bytes of the trailer's schema section."""
    buffer = _checked(data, section, where)
    try:
        if message_length(buffer.slice(0, 8).to_pybytes()) != buffer.size:
            raise ObjectCorrupt("an Arrow schema message has another length than its section")
        schema = pa.ipc.read_schema(buffer).remove_metadata()
        _check_schema(schema)
    except (ObjectCorrupt, InvalidSchema, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _corrupt(where, f"the schema cannot be read: {error}") from error
    return schema


def decode_entry(data: pa.Buffer | bytes, header: EntryHeader, schema: pa.Schema, where: str) -> Entry:
    """An entry, from the bytes of its section and the segment's schema."""
    buffer = _checked(data, header.section, where)
    try:
        declared = declared_batch(buffer)
        if (declared.rows, declared.raw_bytes) != (header.row_count, header.raw_bytes):
            raise ObjectCorrupt(
                f"a record batch declares {declared.rows} rows and {declared.raw_bytes} bytes, "
                f"the section table {header.row_count} and {header.raw_bytes}"
            )
        rows = pa.ipc.read_record_batch(buffer, schema)
        rows.validate(full=True)
        _check_rows(header.region, header.first, header.next, rows)
    except (ObjectCorrupt, ActionNeeded, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _corrupt(where, f"rows of region {header.region.name} cannot be read: {error}") from error
    return Entry(header.region, header.first, header.next, header.contract_version, rows, header.rejected)


def _slice(buffer: pa.Buffer, section: Section) -> pa.Buffer:
    return buffer.slice(section.start, section.length)


def _checked(data: pa.Buffer | bytes, section: Section, where: str) -> pa.Buffer:
    buffer = pa.py_buffer(data)
    if buffer.size != section.length or google_crc32c.value(buffer) != section.checksum:
        raise _corrupt(where, f"the checksum of bytes {section.start} to {section.start + section.length} is wrong")
    return buffer


def _corrupt(where: str, problem: str) -> ObjectCorrupt:
    return ObjectCorrupt(
        f"{where} is corrupt: {problem}; restore the object, or read its records from Kafka again: `lancewal repair segment`",
        object=where,
    )


# -- rules of an entry -----------------------------------------------------------------------------------------


def _check_schema(schema: pa.Schema) -> None:
    system = pa.schema(SYSTEM_FIELDS)
    if not pa.schema(list(schema)[-len(system) :]).equals(system):
        raise InvalidSchema(f"a WAL batch ends with the columns {system.names}, not {schema.names[-len(system) :]}")
    for field in schema:
        if _has_dictionary(field.type):
            raise InvalidSchema(f"column {field.name!r} is dictionary encoded, which a WAL batch cannot be")


def _has_dictionary(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return True
    return any(_has_dictionary(type_.field(i).type) for i in range(type_.num_fields))


def _check_words(writer: str, rejected: Iterable[tuple[RejectedOffset, ...]]) -> None:
    try:
        word(writer, "writer")
        for kind in {record.kind for records in rejected for record in records}:
            word(kind, "kind of a rejected record")
    except NoWord as error:
        raise InvalidInput(str(error)) from error


def _check_fence(fence: Fence) -> None:
    _check_words(fence.writer, ())
    try:
        if fence.writer_log is not None:
            word(fence.writer_log, "writer_log")
    except NoWord as error:
        raise InvalidInput(str(error)) from error


def _check_once(regions: list[Region]) -> None:
    seen: set[Region] = set()
    for region in regions:
        if region in seen:
            raise InvalidInput(f"region {region.name} has two entries in one segment", region=region.name)
        seen.add(region)


def _check_positions(
    region: Region, first: Position, next_: Position, contract_version: int, rejected: tuple[RejectedOffset, ...]
) -> None:
    if not 0 <= first < next_:
        raise InvalidInput(f"an entry of region {region.name} covers {first} to {next_}", region=region.name)
    if contract_version < 1:
        raise InvalidInput(f"an entry of region {region.name} names contract version {contract_version}")
    offsets = [first - 1, *(record.offset for record in rejected), next_]
    if any(later <= earlier for earlier, later in pairwise(offsets)):
        raise InvalidInput(
            f"rejected offsets of region {region.name} do not ascend inside {first} to {next_}", region=region.name
        )


def _check_rows(region: Region, first: Position, next_: Position, rows: pa.RecordBatch) -> None:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not field.nullable and column.null_count:
            raise InvalidInput(f"rows of region {region.name} have nulls in {field.name!r}", region=region.name)
    if rows.num_rows:
        span = pc.min_max(rows.column(OFFSET))
        low, high = span["min"].as_py(), span["max"].as_py()
        if low < first or high >= next_:
            raise InvalidInput(
                f"rows of region {region.name} have offsets {low} to {high}, outside {first} to {next_}",
                region=region.name,
            )
