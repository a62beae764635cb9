"""Bundles: copies of consecutive small segments of a log in one object, regrouped by region.

A reader far from the store asks for one object instead of all segments that the bundle copies, and decodes their rows
together.  A bundle is a hint; the segments are the log.  A process that ends the log, flushes from it or repairs it
reads the segments.  A bundle that is lost, damaged, late or of other segments than those in the store costs time and
changes no row.

Layout of the object: that of a segment (``segment``), except that the content of its table is a ``bundle``.  The table
lists the entries of all segments, sorted by region, and says for each entry which segment has it.  For each segment it
has the object's size and entity tag, as the store gave them.

Promises:

1. ``decode_bundle(encode_bundle(s, schema), key).copies == s``, except that the entries of a segment are in the order
   of their regions.
2. A copy is only used if a listing shows its segment with the same size and entity tag (``Copy.is_of``).  So a copy is
   used for the object that the bundle's writer put, and never for one that somebody put in its place later.
3. A truncated, changed, mixed up or otherwise malformed object raises ``ObjectCorrupt``, a later format version
   ``FormatUnknown``; nothing is decompressed that the table's checked sizes do not allow (``segment``, promise 4).
4. An object is only accepted under its own key: key and object must have the same log, first and last number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Sequence
from lancewal_core.names.proto import wal_segment_pb2
from lancewal_core.store.object_kinds import BUNDLE_BYTES_MAX, BUNDLE_ROWS_BYTES_MAX
from lancewal_core.store.object_store import ObjectInfo
from lancewal_core.wal.entry import Entry, EntryHeader
from lancewal_core.wal.segment import (
    Segment,
    Trailer,
    assemble,
    check_whole,
    corrupt,
    decode_body,
    encode_body,
    entries_of,
    read_table,
)

SEGMENTS_MAX = 1_024
"""Largest number of segments that a bundle may copy.  The bundles that ingest writes copy 32."""

_Table = wal_segment_pb2.WalSegmentTable


@dataclass(frozen=True, slots=True)
class Copy:
    """A copied segment, and its object's size in bytes and entity tag in the store."""

    segment: Segment
    size: int
    etag: str

    def is_of(self, listed: ObjectInfo) -> bool:
        """Return whether a listed object has the size and entity tag of the segment that was copied."""
        return (listed.size, listed.etag) == (self.size, self.etag)


@dataclass(frozen=True, slots=True)
class Bundle:
    """One bundle: copies of consecutive segments."""

    log: LogId
    first: Sequence
    writer: str
    copies: tuple[Copy, ...]
    """Copies in the order of their numbers, without gaps; at least one."""

    @property
    def key(self) -> str:
        return paths.wal_bundle(self.log, self.first, self.copies[-1].segment.sequence)


def encode_bundle(copies: Seq[Copy], schema: pa.Schema) -> bytes:
    """Return the bundle's bytes.  ``schema``: the schema of every entry's rows.

    Raise ``InvalidInput`` unless the copies are consecutive segments of one log by one writer.  Raise it too for no
    copies, or for more copies or bytes of rows than a bundle may have."""
    segments = [copy.segment for copy in copies]
    if not 0 < len(segments) <= SEGMENTS_MAX:
        raise InvalidInput(f"a bundle copies 1 to {SEGMENTS_MAX} segments, not {len(segments)}")
    head = segments[0]
    if any((s.log, s.sequence, s.writer) != (head.log, head.sequence + n, head.writer) for n, s in enumerate(segments)):
        raise InvalidInput(
            f"a bundle copies consecutive segments of one log by one writer. Those from segment {head.sequence} of log "
            f"{head.log!r} on are not",
            log=head.log,
        )
    placed = [(entry, place) for place, segment in enumerate(segments) for entry in segment.entries]
    placed.sort(key=lambda found: found[0].region)  # stable: of a region as they were stored
    body, content = encode_body(head, schema, [entry for entry, _ in placed])
    if (rows_bytes := sum(batch.raw_bytes for batch in content.batches)) > BUNDLE_ROWS_BYTES_MAX:
        raise InvalidInput(
            f"a bundle may have at most {BUNDLE_ROWS_BYTES_MAX} bytes of rows, not {rows_bytes}", log=head.log
        )
    for before, entry in reversed(list(zip(content.entries, content.entries[1:], strict=False))):
        if entry.region == before.region:
            entry.region = ""
    bundle = _Table.Bundle(body=content, places=[place for _, place in placed])
    bundle.segments.extend(
        _Table.Bundled(size=copy.size, etag=copy.etag, written_at_ms=copy.segment.written_at_ms) for copy in copies
    )
    return assemble(body, _Table(log=head.log, sequence=head.sequence, writer=head.writer, bundle=bundle))


def decode_bundle(data: bytes, where: str) -> Bundle:
    """Return the bundle stored under the key ``where``.  Raises ``ObjectCorrupt`` or ``FormatUnknown`` if it cannot be
    read.
    """
    if len(data) > BUNDLE_BYTES_MAX:
        raise corrupt(where, f"it has {len(data)} bytes; a bundle has at most {BUNDLE_BYTES_MAX}")
    message, trailer = _decode_trailer(data, where)
    bundle = message.bundle
    of_segments: dict[int, list[tuple[EntryHeader, Entry]]] = defaultdict(list)
    entries = entries_of(trailer, data, where, None)
    for place, header, entry in zip(bundle.places, trailer.entries, entries, strict=True):
        of_segments[place].append((header, entry))
    copies = []
    for place, said in enumerate(bundle.segments):
        found = of_segments.pop(place, [])
        check_whole(message.writer, [header for header, _ in found], where)
        segment = Segment(
            trailer.log,
            Sequence(trailer.sequence + place),
            trailer.writer,
            tuple(entry for _, entry in found),
            said.written_at_ms,
        )
        copies.append(Copy(segment, said.size, said.etag))
    return Bundle(trailer.log, trailer.sequence, trailer.writer, tuple(copies))


def _decode_trailer(data: bytes, where: str) -> tuple[wal_segment_pb2.WalSegmentTable, Trailer]:
    message, body_length = read_table(data, where, len(data))
    if message.WhichOneof("content") != "bundle":
        raise corrupt(where, "it is not a bundle")
    bundle = message.bundle
    if len(bundle.segments) > SEGMENTS_MAX:
        raise corrupt(where, f"it copies {len(bundle.segments)} segments; a bundle copies at most {SEGMENTS_MAX}")
    last = message.sequence + len(bundle.segments) - 1
    if paths.parse_wal_bundle(where) != (message.log, message.sequence, last):
        raise corrupt(where, f"it says that it copies segments {message.sequence} to {last} of log {message.log!r}")
    if len(bundle.places) != len(bundle.body.entries):
        raise corrupt(
            where, f"it has {len(bundle.body.entries)} entries, but names the segments of {len(bundle.places)}"
        )
    if any(place >= len(bundle.segments) for place in bundle.places):
        raise corrupt(where, "an entry is of a segment that the bundle does not copy")
    region = ""
    for entry in bundle.body.entries:
        region = entry.region = entry.region or region
    trailer = decode_body(message, bundle.body, body_length, where)
    if (rows_bytes := sum(batch.raw_bytes for batch in trailer.batches)) > BUNDLE_ROWS_BYTES_MAX:
        raise corrupt(
            where, f"it declares {rows_bytes} bytes of rows, more than any bundle holds ({BUNDLE_ROWS_BYTES_MAX})"
        )
    return message, trailer
