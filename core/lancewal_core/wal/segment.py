"""WAL segments and fences as bytes.

A segment is what one ingest process consumed between two PUTs: one *entry* for each region that had records.  A fence
has the key of a segment but no rows: it ends the log.  Small entries share a record batch, since each batch costs about
a kilobyte and a fifth of a millisecond, however few its rows.

Layout of the object, integers little endian:

* body: one Arrow IPC stream, lz4: schema, record batches, end mark.  A fence has none.
* table: protobuf ``WalSegmentTable``: log, sequence and writer; byte range and crc32c of the schema and of each record
  batch, with the number of entries in it; each entry's region, positions, rows, their lowest and highest Kafka
  timestamp, and rejected records.
* footer: body length u64, table length u32, table crc32c u32, format version u32, crc32c of these 20 bytes u32, magic
  ``LWAL``.

Promises:

1. ``decode_segment(encode_segment(s, schema), key) == s``, and one segment gives equal bytes each time.
2. The body alone is a stream that every Arrow library reads.
3. One region's rows can be read by byte ranges: trailer (table and footer), schema, and the record batch that holds
   them.  At most ``SHARED_ROWS_MAX`` rows of other regions come with them.
4. A truncated, changed, mixed up or otherwise malformed object raises ``ObjectCorrupt`` that names it, a later format
   version ``FormatUnknown``; never a crash, never other rows.  Nothing is decompressed that the table's checked sizes
   do not allow, and no more than ``SEGMENT_ROWS_BYTES_MAX`` in all.  With ``regions`` given, the bytes of batches that
   hold none of their rows are not looked at, and no entry keeps other regions' rows in memory.
5. An object is only accepted under its own key: key and object must have the same log and sequence.
6. An entry that breaks its rules (``entry``), or a segment that is larger than one may be, is neither written nor read.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import pairwise

import google_crc32c
import pyarrow as pa
from google.protobuf.message import DecodeError

from lancewal_core.errors import (
    ActionNeeded,
    FormatUnknown,
    InvalidInput,
    InvalidSchema,
    LancewalError,
    ObjectCorrupt,
    some_of,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Position, Region, Sequence
from lancewal_core.names.proto import wal_segment_pb2
from lancewal_core.names.words import NoWord, word
from lancewal_core.rows.column_types import nested_types
from lancewal_core.rows.own_rows import own_rows
from lancewal_core.rows.record_times import RecordTimes, times_of_parts
from lancewal_core.rows.row_range import RowRange, joined
from lancewal_core.rows.schema import OP, SYSTEM_FIELDS
from lancewal_core.store.arrow_message import END_OF_STREAM, LZ4_RATIO_MAX, declared_batch, message_length
from lancewal_core.store.object_kinds import SEGMENT_ROWS_BYTES_MAX, SEGMENT_TRAILER_BYTES_MAX
from lancewal_core.wal.entry import (
    Entry,
    EntryHeader,
    RejectedOffset,
    check_entries,
    check_rows,
    check_words,
    only_deletes,
)

FORMAT_VERSION = 1
MAGIC = b"LWAL"
FOOTER_SIZE = 28
TRAILER_HINT = 16 * 1024
"""Bytes to fetch from an object's end first: enough for the trailer of about 170 entries without rejected records."""

_FOOTER = struct.Struct("<QIIII4s")
_FOOTER_CHECKED = 20

SHARED_ROWS_MAX = 2_048
"""Largest number of rows of a record batch that entries of several regions share in a segment."""
BATCH_ROWS_MAX = 65_536
"""Largest number of rows of a record batch, unless one entry alone has more."""

_SHOWN = 300
"""Largest number of characters that a message quotes of a text from the object."""
_NAMED = 3
"""Largest number of regions of a record batch that a message names."""

_Table = wal_segment_pb2.WalSegmentTable


@dataclass(frozen=True, slots=True)
class Segment:
    """One object of a log that holds rows."""

    log: LogId
    sequence: Sequence
    writer: str
    """Owner id of the process that wrote it."""
    entries: tuple[Entry, ...]
    """Entries of the segment, at most one for each region."""
    written_at_ms: int
    """Time when the segment was made for its first PUT: milliseconds since 1970, by the writer's clock."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The end of a log, put there by another process."""

    log: LogId
    """The log that ends here."""
    sequence: Sequence
    writer: str
    """Owner id of the process that put the fence."""
    written_at_ms: int
    writer_log: LogId | None = None
    """The log that the process which put the fence writes itself; None if it has no log."""


@dataclass(frozen=True, slots=True)
class SegmentSection:
    """A byte range of the object, and the crc32c of its bytes."""

    start: int
    length: int
    checksum: int


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """Header of a record batch in the trailer."""

    section: SegmentSection
    """Byte range of the batch's Arrow message in the object."""
    raw_bytes: int
    """Decompressed size of the batch's buffers, in bytes."""
    entries: tuple[EntryHeader, ...]
    """Entries whose rows the batch holds, one after the other."""


@dataclass(frozen=True, slots=True)
class Trailer:
    """The table of a segment (module docstring): everything about the segment except its rows."""

    log: LogId
    sequence: Sequence
    writer: str
    written_at_ms: int
    schema: SegmentSection
    batches: tuple[BatchHeader, ...]

    @property
    def entries(self) -> tuple[EntryHeader, ...]:
        return tuple(entry for batch in self.batches for entry in batch.entries)


# -- writing ---------------------------------------------------------------------------------------------------


def encode_segment(segment: Segment, schema: pa.Schema) -> bytes:
    """Return the segment as an object's bytes.  ``schema`` is the schema of every entry's rows (``RowSchema.wal``).

    Raise ``InvalidInput`` for an entry that breaks its rules, or for a segment that is too large.  Raise
    ``InvalidSchema`` if rows have another schema than ``schema``, or if no WAL entry may have that schema.
    """
    paths.wal_segment(segment.log, segment.sequence)  # Raises when they cannot be a key.
    _check_schema(schema)
    check_entries(segment.writer, segment.entries)
    body, content = encode_body(segment, schema, segment.entries)
    table = _Table(
        log=segment.log,
        sequence=segment.sequence,
        writer=segment.writer,
        written_at_ms=segment.written_at_ms,
        body=content,
    )
    rows_bytes = sum(batch.raw_bytes for batch in content.batches)
    if rows_bytes > SEGMENT_ROWS_BYTES_MAX or table.ByteSize() > SEGMENT_TRAILER_BYTES_MAX:
        raise InvalidInput(
            f"a WAL segment may have at most {SEGMENT_ROWS_BYTES_MAX} bytes of rows and a table of "
            f"{SEGMENT_TRAILER_BYTES_MAX} bytes. This one has {rows_bytes} and {table.ByteSize()}",
            log=segment.log,
        )
    return assemble(body, table)


def encode_body(
    numbered: Segment, schema: pa.Schema, entries: Seq[Entry]
) -> tuple[pa.Buffer, wal_segment_pb2.WalSegmentTable.Body]:
    """Return the Arrow stream that holds the rows of these entries, and its description for the table.

    ``numbered`` only gives the log and sequence, which become metadata of the stream's schema.
    """
    for entry in {id(entry.range.batch): entry for entry in entries}.values():
        found = entry.range.batch.schema
        if not found.equals(schema):
            raise InvalidSchema(
                f"rows of region {entry.region.name!r} have the schema {found}, not the contract's {schema}",
                region=entry.region.name,
            )
    shares = _shares(entries)
    body, ends, facts = _write_stream(numbered, schema, shares)
    schema_end = message_length(body.slice(0, 8).to_pybytes())
    content = _Table.Body(schema=_section(body, 0, schema_end))
    for entry, (times, deletes_only) in zip(entries, facts, strict=True):
        _encode_header(content.entries.add(), entry, times, deletes_only)
    for share, (start, end) in zip(shares, pairwise([schema_end, *ends]), strict=True):
        raw_bytes = declared_batch(body.slice(start, end - start)).raw_bytes
        content.batches.append(
            _Table.Batch(section=_section(body, start, end), raw_bytes=raw_bytes, entries=len(share))
        )
    return body, content


def _shares(entries: Seq[Entry]) -> list[list[Entry]]:
    """Return the entries in their order, grouped into record batches.  Regions with few rows share a batch.  A region
    with many rows has one or several batches of its own.

    The groups depend only on regions and numbers of rows.  So a segment that was read and is encoded again has the same
    groups."""
    shares: list[list[Entry]] = []
    rows = 0
    for entry in entries:
        rows += entry.row_count
        fits = rows <= SHARED_ROWS_MAX or (rows <= BATCH_ROWS_MAX and shares and shares[-1][-1].region == entry.region)
        if not shares or not fits:
            shares.append([])
            rows = entry.row_count
        shares[-1].append(entry)
    return shares


def _write_stream(
    segment: Segment, schema: pa.Schema, shares: Seq[Seq[Entry]]
) -> tuple[pa.Buffer, list[int], list[tuple[RecordTimes | None, bool]]]:
    """Return the body, the byte at which each record batch ends in it, and two facts about each entry.

    The facts are the entry's record times, and whether it has only deletes."""
    sink = pa.BufferOutputStream()
    # For people who open the body with an Arrow tool; a reader goes by the table.
    described = schema.with_metadata({"lancewal.log": segment.log, "lancewal.sequence": str(segment.sequence)})
    ends, facts = list[int](), list[tuple[RecordTimes | None, bool]]()
    with pa.ipc.new_stream(sink, described, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for share in shares:
            rows = joined((entry.range for entry in share), schema)
            check_rows(rows, share)
            counts = [entry.row_count for entry in share]
            facts += zip(times_of_parts(rows, counts), only_deletes(rows.column(OP), counts), strict=True)
            writer.write_batch(rows)
            ends.append(sink.tell())
    return sink.getvalue(), ends, facts


def _encode_header(header: _Table.Entry, entry: Entry, times: RecordTimes | None, deletes_only: bool) -> None:
    # Set one by one: a message made of its fields takes ten times as long, and a segment has hundreds.
    header.region = entry.region.name
    header.first_position = entry.first
    header.next_position = entry.next
    header.contract_version = entry.contract_version
    header.rows = entry.row_count
    for rejected in entry.rejected:
        header.rejected.add(offset=rejected.offset, kind=rejected.kind)
    if times is not None:
        header.record_time_min_ms, header.record_time_max_ms = times
    if deletes_only:
        header.deletes_only = True


def _section(body: pa.Buffer, start: int, end: int) -> _Table.Section:
    checksum = google_crc32c.value(body.slice(start, end - start))
    return _Table.Section(start=start, length=end - start, checksum=checksum)


def encode_fence(fence: Fence) -> bytes:
    """Return the fence as an object's bytes.

    Raise ``InvalidInput`` if its log and sequence cannot be a key, or if its writer or the writer's log is not a valid
    identifier.
    """
    paths.wal_segment(fence.log, fence.sequence)
    _check_fence(fence)
    table = _Table(
        log=fence.log,
        sequence=fence.sequence,
        writer=fence.writer,
        written_at_ms=fence.written_at_ms,
        fence=_Table.Fence(writer_log=fence.writer_log),
    )
    return assemble(pa.py_buffer(b""), table)


def assemble(body: pa.Buffer, message: wal_segment_pb2.WalSegmentTable) -> bytes:
    """Return the object: body, table, footer."""
    table = message.SerializeToString(deterministic=True)
    checked = _FOOTER.pack(body.size, len(table), google_crc32c.value(table), FORMAT_VERSION, 0, MAGIC)
    checked = checked[:_FOOTER_CHECKED]
    return b"".join((body, table, checked, struct.pack("<I", google_crc32c.value(checked)), MAGIC))


# -- reading ---------------------------------------------------------------------------------------------------


def decode_segment(data: bytes, where: str, regions: Collection[Region] | None = None) -> Segment | Fence:
    """Read the object stored under the key ``where``; with ``regions``, only these regions' entries.

    Rows are views of ``data`` or of its decompressed buffers.  Raise ``ObjectCorrupt`` or ``FormatUnknown``.
    """
    trailer = decode_trailer(data, where, len(data))
    return trailer if isinstance(trailer, Fence) else segment_of(trailer, data, where, regions)


def segment_of(trailer: Trailer, data: bytes, where: str, regions: Collection[Region] | None = None) -> Segment:
    """Decode the segment in ``data``, whose trailer is decoded already.  ``regions`` and errors are as in
    ``decode_segment``."""
    entries = tuple(entries_of(trailer, data, where, regions))
    return Segment(trailer.log, trailer.sequence, trailer.writer, entries, trailer.written_at_ms)


def entries_of(trailer: Trailer, data: bytes, where: str, regions: Collection[Region] | None) -> Iterator[Entry]:
    """Yield the entries of ``data`` in the order of the object's table; with ``regions``, only entries of these
    regions.

    ``trailer`` is the decoded trailer of ``data``."""
    buffer = pa.py_buffer(data)
    body_end = trailer.batches[-1].section if trailer.batches else trailer.schema
    end = buffer.slice(body_end.start + body_end.length, len(END_OF_STREAM))
    if end.to_pybytes() != END_OF_STREAM:
        raise corrupt(where, "the Arrow stream has no end mark")
    schema = decode_schema(_slice(buffer, trailer.schema), trailer.schema, where)
    for header in trailer.batches:
        if regions is None or any(entry.region in regions for entry in header.entries):
            yield from decode_batch(_slice(buffer, header.section), header, schema, where, regions)


def trailer_length(tail: bytes, where: str) -> int:
    """Return the length of the trailer in bytes, given the object's last ``FOOTER_SIZE`` bytes or more."""
    _, table_length, _ = _read_footer(tail, where)
    return table_length + FOOTER_SIZE


def decode_trailer(tail: bytes, where: str, object_size: int) -> Trailer | Fence:
    """Decode the trailer from the object's last ``trailer_length`` bytes or more.

    ``object_size`` is the size of the whole object, which must be the size that the trailer says.
    """
    message, body_length = read_table(tail, where, object_size)
    if paths.parse_wal_segment(where) != (message.log, message.sequence):
        raise corrupt(where, f"it says that it is segment {message.sequence} of log {message.log!r}")
    match message.WhichOneof("content"):
        case "fence":
            if body_length:
                raise corrupt(where, "it is a fence, but has a body")
            return _decode_fence(message, where)
        case "body":
            trailer = decode_body(message, message.body, body_length, where)
            check_whole(message.writer, trailer.entries, where)
            return trailer
        case _:
            raise corrupt(where, "it is neither a segment nor a fence")


def read_table(tail: bytes, where: str, object_size: int) -> tuple[wal_segment_pb2.WalSegmentTable, int]:
    """Return the table of a segment, fence or bundle, and the length of its body in bytes.

    ``tail``: the object's last bytes, which must hold table and footer.  ``object_size``: bytes of the whole object."""
    body_length, table_length, checksum = _read_footer(tail, where)
    if body_length + table_length + FOOTER_SIZE != object_size:
        raise corrupt(where, f"it has {object_size} bytes, not {body_length + table_length + FOOTER_SIZE}")
    if len(tail) < table_length + FOOTER_SIZE:
        raise corrupt(where, f"its last {len(tail)} bytes do not hold the trailer of {table_length + FOOTER_SIZE}")
    data = bytes(tail[len(tail) - table_length - FOOTER_SIZE : len(tail) - FOOTER_SIZE])
    if google_crc32c.value(data) != checksum:
        raise corrupt(where, "the section table's checksum does not match")
    message = _Table()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise corrupt(where, "the section table is not a protobuf message") from error
    return message, body_length


def _read_footer(tail: bytes, where: str) -> tuple[int, int, int]:
    """Return body length, table length and table checksum."""
    if len(tail) < FOOTER_SIZE:
        raise corrupt(where, f"it has only {len(tail)} bytes; its footer needs {FOOTER_SIZE}")
    footer = bytes(tail[-FOOTER_SIZE:])
    body_length, table_length, table_checksum, version, checksum, magic = _FOOTER.unpack(footer)
    if magic != MAGIC:
        raise corrupt(where, f"it ends with {magic!r} instead of {MAGIC!r}")
    if google_crc32c.value(footer[:_FOOTER_CHECKED]) != checksum:
        raise corrupt(where, "the footer's checksum does not match")
    if version != FORMAT_VERSION:
        raise FormatUnknown(
            f"{where}: WAL segment format version {version} is not read by this release, which knows "
            f"{FORMAT_VERSION}: upgrade lancewal",
            object=where,
        )
    if table_length > SEGMENT_TRAILER_BYTES_MAX:
        raise corrupt(
            where, f"its section table has {table_length} bytes; at most {SEGMENT_TRAILER_BYTES_MAX} are allowed"
        )
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
        raise corrupt(where, str(error)) from error
    return fence


def check_whole(writer: str, entries: Seq[EntryHeader], where: str) -> None:
    """Check the entries of one segment that ``writer`` wrote.  Raise ``ObjectCorrupt`` if one breaks the rules of
    ``entry``."""
    try:
        check_entries(writer, entries)
    except LancewalError as error:
        raise corrupt(where, str(error)) from error


def decode_body(
    message: wal_segment_pb2.WalSegmentTable, body: wal_segment_pb2.WalSegmentTable.Body, body_length: int, where: str
) -> Trailer:
    """Return the trailer that the object's table describes in ``body``.  The caller must check the rules of entries."""
    schema = _decode_section(body.schema)
    batches = _decode_batches(body, where)
    rows_bytes = sum(batch.raw_bytes for batch in batches)
    if rows_bytes > SEGMENT_ROWS_BYTES_MAX:
        raise corrupt(
            where, f"it declares {rows_bytes} bytes of rows, more than any segment holds ({SEGMENT_ROWS_BYTES_MAX})"
        )
    end = 0
    for section in (schema, *(batch.section for batch in batches)):
        if section.start != end or section.length == 0:
            raise corrupt(where, f"a section of {section.length} bytes starts at {section.start} instead of {end}")
        end += section.length
    if end + len(END_OF_STREAM) != body_length:
        raise corrupt(where, f"its sections end at {end}, its body at {body_length}")
    log, sequence = LogId(message.log), Sequence(message.sequence)
    return Trailer(log, sequence, message.writer, message.written_at_ms, schema, batches)


def _decode_batches(body: _Table.Body, where: str) -> tuple[BatchHeader, ...]:
    batches, at = [], 0
    for batch in body.batches:
        section, held = _decode_section(batch.section), body.entries[at : at + batch.entries]
        if not held or len(held) != batch.entries:
            raise corrupt(
                where, f"a record batch should hold {batch.entries} entries, but the table has only {len(held)} for it"
            )
        if batch.raw_bytes > LZ4_RATIO_MAX * section.length:
            raise corrupt(where, f"{section.length} bytes cannot hold {batch.raw_bytes} bytes of rows")
        rows = sum(entry.rows for entry in held) or 1
        entries = (_decode_header(entry, section.length * entry.rows // rows, where) for entry in held)
        batches.append(BatchHeader(section, batch.raw_bytes, tuple(entries)))
        at += len(held)
    if at != len(body.entries):
        raise corrupt(where, f"{len(body.entries) - at} of its {len(body.entries)} entries are in no record batch")
    return tuple(batches)


def _decode_header(entry: _Table.Entry, nbytes: int, where: str) -> EntryHeader:
    low, high = entry.HasField("record_time_min_ms"), entry.HasField("record_time_max_ms")
    times = RecordTimes(entry.record_time_min_ms, entry.record_time_max_ms) if low else None
    if low != high or low != bool(entry.rows) or (times is not None and times.min_ms > times.max_ms):
        raise corrupt(
            where, f"an entry of region {entry.region[:_SHOWN]!r} has {entry.rows} rows, and record times {times}"
        )
    if entry.deletes_only and not entry.rows:
        raise corrupt(where, f"an entry of region {entry.region[:_SHOWN]!r} is marked as only deletes, but has no rows")
    return EntryHeader(
        region=_region(entry.region, where),
        first=Position(entry.first_position),
        next=Position(entry.next_position),
        contract_version=entry.contract_version,
        row_count=entry.rows,
        record_times=times,
        rejected=tuple(RejectedOffset(rejected.offset, rejected.kind) for rejected in entry.rejected),
        nbytes=nbytes,
        deletes_only=entry.deletes_only,
    )


def _decode_section(section: _Table.Section) -> SegmentSection:
    return SegmentSection(section.start, section.length, section.checksum)


def _region(name: str, where: str) -> Region:
    region = paths.parse_region(name)
    if region is None:
        raise corrupt(where, f"{name[:_SHOWN]!r} is not a region's name")
    return region


def decode_schema(data: pa.Buffer | bytes, section: SegmentSection, where: str) -> pa.Schema:
    """Return the schema of the rows.  ``data``: the bytes of the object's range ``section``."""
    buffer = _checked(data, section, where)
    try:
        if message_length(buffer.slice(0, 8).to_pybytes()) != buffer.size:
            raise ObjectCorrupt("an Arrow schema message has another length than its section")
        schema = pa.ipc.read_schema(buffer).remove_metadata()
        _check_schema(schema)
    except (ObjectCorrupt, InvalidSchema, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise corrupt(where, f"the schema cannot be read: {error}") from error
    return schema


def decode_batch(
    data: pa.Buffer | bytes,
    header: BatchHeader,
    schema: pa.Schema,
    where: str,
    regions: Collection[Region] | None = None,
) -> list[Entry]:
    """Return the entries of a record batch; with ``regions``, only entries of these regions.

    ``data``: the bytes of the batch's section.  ``schema``: the schema of the segment's rows."""
    buffer = _checked(data, header.section, where)
    try:
        declared = declared_batch(buffer)
        row_count = sum(entry.row_count for entry in header.entries)
        if (declared.rows, declared.raw_bytes) != (row_count, header.raw_bytes):
            raise ObjectCorrupt(
                f"a record batch declares {declared.rows} rows and {declared.raw_bytes} bytes, "
                f"the section table {row_count} and {header.raw_bytes}"
            )
        rows = pa.ipc.read_record_batch(buffer, schema)
        rows.validate(full=True)
        check_rows(rows, header.entries)
        _check_facts(rows, header.entries)
    except (ObjectCorrupt, ActionNeeded, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        names = some_of([entry.region.name for entry in header.entries], _NAMED)
        raise corrupt(where, f"rows of region {names} cannot be read: {error}") from error
    wanted = [regions is None or entry.region in regions for entry in header.entries]
    wanted_rows = sum(entry.row_count for entry, want in zip(header.entries, wanted, strict=True) if want)
    entries, at = [], 0
    for entry, want in zip(header.entries, wanted, strict=True):
        if want:
            held = RowRange(rows, at, entry.row_count)
            if 2 * wanted_rows < rows.num_rows:
                held = RowRange.whole(own_rows(held.rows))
            entries.append(Entry(entry.region, entry.first, entry.next, entry.contract_version, held, entry.rejected))
        at += entry.row_count
    return entries


def _check_facts(rows: pa.RecordBatch, entries: tuple[EntryHeader, ...]) -> None:
    counts = [entry.row_count for entry in entries]
    found = times_of_parts(rows, counts)
    if any(entry.deletes_only for entry in entries):
        for entry, deletes_only in zip(entries, only_deletes(rows.column(OP), counts), strict=True):
            if entry.deletes_only and not deletes_only:
                raise ObjectCorrupt(
                    f"rows of region {entry.region.name!r} are not all deletes, although the section table says so"
                )
    for entry, times in zip(entries, found, strict=True):
        if times != entry.record_times:
            raise ObjectCorrupt(
                f"rows of region {entry.region.name!r} have record times {times}, but the section table says "
                f"{entry.record_times}"
            )


def _slice(buffer: pa.Buffer, section: SegmentSection) -> pa.Buffer:
    return buffer.slice(section.start, section.length)


def _checked(data: pa.Buffer | bytes, section: SegmentSection, where: str) -> pa.Buffer:
    buffer = pa.py_buffer(data)
    if buffer.size != section.length or google_crc32c.value(buffer) != section.checksum:
        raise corrupt(where, f"the checksum of bytes {section.start} to {section.start + section.length} is wrong")
    return buffer


def corrupt(where: str, problem: str) -> ObjectCorrupt:
    """Return the error for a corrupt segment, fence or bundle; ``problem`` says what is wrong."""
    act = "restore the object, or read its records from Kafka again: `lancewal repair segment`"
    if paths.parse_wal_bundle(where) is not None:
        act = "readers ignore it and read the segments that it copies. It can be deleted"
    return ObjectCorrupt(f"{where} is corrupt: {problem}; {act}", object=where)


# -- rules of a segment --------------------------------------------------------------------------------------------


def _check_schema(schema: pa.Schema) -> None:
    system = pa.schema(SYSTEM_FIELDS)
    if not pa.schema(list(schema)[-len(system) :]).equals(system):
        raise InvalidSchema(f"a WAL batch ends with the columns {system.names}, not {schema.names[-len(system) :]}")
    for field in schema:
        if any(map(pa.types.is_dictionary, nested_types(field.type))):
            raise InvalidSchema(f"column {field.name!r} is dictionary encoded, which a WAL batch cannot be")


def _check_fence(fence: Fence) -> None:
    check_words(fence.writer, ())
    try:
        if fence.writer_log is not None:
            word(fence.writer_log, "writer_log")
    except NoWord as error:
        raise InvalidInput(str(error)) from error
