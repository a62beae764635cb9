"""A page: the states of some regions of one topic in one object, each a record of its own.

Promises:

1. ``decode_page(encode_page(page)) == page``, and equal pages give equal bytes.
2. Any changed, missing or added byte is found: in the head by its checksum, in a record by its own (``state_in``).  So
   damage in one record, or a record of a newer format, affects that region alone.  The other records are read, and a
   swap of another region copies the record as it is, unread.
3. The sound records of a page unpack to no more than ``PAGE_BYTES_MAX`` together.
4. A head of a format version that this release does not know raises ``FormatUnknown``; such a page is never partly
   read.

Layout: first the length of the head (4 bytes, little endian), then the head (protobuf ``StatePageHead``,
``proto/state_page.proto``, its checksum last).  The records follow without gaps, in the order of their partitions.  A
record is a packed state of a region (``packed_record``), which this module does not decode.  A record without bytes is
lost: a repair writes such a record where it could not keep one.  A partition without a record has not been claimed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace

import google_crc32c
from google.protobuf.message import DecodeError

from lancewal_core.errors import ActionNeeded, FormatUnknown, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Page, TopicId
from lancewal_core.names.proto import state_page_pb2
from lancewal_core.names.words import FORM, is_word
from lancewal_core.region.pages.packed_record import unpacked_bytes
from lancewal_core.store.object_kinds import PAGE_BYTES_MAX, check_unpacked
from lancewal_core.store.versioned import FIRST_VERSION

FORMAT_VERSION = 1
_LENGTH = struct.Struct("<I")
_CHECKSUM_TAG = b"\xfd\x07"
"""Wire tag of the field ``checksum``: number 127, four bytes fixed."""
_CHECKSUM_SIZE = len(_CHECKSUM_TAG) + 4

_Head = state_page_pb2.StatePageHead


@dataclass(frozen=True, slots=True)
class PageRecord:
    """Record of one region in a page."""

    data: bytes
    """The packed state of a region.  Empty bytes mean that the state is lost."""
    changed_at_ms: int
    """Time when the record was written, in milliseconds since 1970, by the clock of its writer."""


@dataclass(frozen=True, slots=True)
class StatePage:
    """One version of a page."""

    page: Page
    regions_per_page: int
    write_id: str
    """Unique for each attempted write: no two objects ever have the same one."""
    records: Mapping[int, PageRecord]
    """Records by partition, ascending."""

    def with_records(self, records: Mapping[int, PageRecord]) -> StatePage:
        """Return the page with these records in the place of the old ones."""
        merged = {**self.records, **records}
        return replace(self, records={p: merged[p] for p in sorted(merged)})

    @property
    def unpacked_bytes(self) -> int:
        """Unpacked bytes of all records that are sound."""
        return sum(unpacked_bytes(record.data) for record in self.records.values())

    def check(self) -> None:
        """Raise ``ObjectCorrupt`` unless this can be a page."""
        if not is_word(self.write_id):
            raise _broken(self.page, f"its write_id {self.write_id[:60]!a} is not an identifier: {FORM}")
        if self.regions_per_page < 1:
            raise _broken(self.page, f"{self.regions_per_page} regions cannot lie in it")
        first = self.page.number * self.regions_per_page
        partitions = list(self.records)
        if partitions != sorted(set(partitions)):
            raise _broken(self.page, f"its partitions {partitions} are not in order")
        strangers = [p for p in partitions if not first <= p < first + self.regions_per_page]
        if strangers:
            raise _broken(self.page, f"it has records of partitions {strangers}, which belong to other pages")


def empty_page(page: Page, regions_per_page: int) -> StatePage:
    """Return a page without records.  It stands for the page before version 1, and is never written."""
    return StatePage(page, regions_per_page, "none", {})


def encode_page(page: StatePage) -> bytes:
    """Return the page as an object's bytes.  Raise ``ObjectCorrupt`` if ``page.check()`` does, or
    ``ObjectTooLarge``."""
    page.check()
    check_unpacked(paths.page_version(page.page, FIRST_VERSION), page.unpacked_bytes)
    head = _Head(
        format_version=FORMAT_VERSION,
        topic=page.page.topic,
        topic_id=page.page.topic_id,
        number=page.page.number,
        regions_per_page=page.regions_per_page,
        write_id=page.write_id,
        slots=[
            _Head.Slot(partition=partition, size=len(record.data), changed_at_ms=record.changed_at_ms)
            for partition, record in page.records.items()
        ],
    )
    body = head.SerializeToString(deterministic=True)
    sealed = body + _CHECKSUM_TAG + struct.pack("<I", google_crc32c.value(body))
    return b"".join((_LENGTH.pack(len(sealed)), sealed, *(record.data for record in page.records.values())))


def decode_page(data: bytes, where: str) -> StatePage:
    """Inverse of ``encode_page``; ``where`` is the object's key.

    Raise ``ObjectCorrupt``, also if the key is another page's, or ``FormatUnknown``.  Records are not decoded.
    """
    head, at = _head(data, where)
    records: dict[int, PageRecord] = {}
    for slot in head.slots:
        if slot.partition in records:
            raise _corrupt(where, f"partition {slot.partition} has two records")
        records[slot.partition] = PageRecord(data[at : at + slot.size], slot.changed_at_ms)
        at += slot.size
    if at != len(data):
        raise _corrupt(where, f"its records end at byte {at}, the object has {len(data)}")
    page = Page(head.topic, TopicId(head.topic_id), head.number, paths.making_of(where))
    try:
        paths.page_prefix(page)
    except ActionNeeded as error:
        raise _corrupt(where, str(error)) from error
    key = paths.parse_page_version(where)
    if key is not None and key[0] != page:
        raise _corrupt(where, f"it is page {page.number} of topic {page.topic}, id {page.topic_id}")
    found = StatePage(page, head.regions_per_page, head.write_id, records)
    if found.unpacked_bytes > PAGE_BYTES_MAX:
        raise _corrupt(
            where, f"its records unpack to {found.unpacked_bytes} bytes, more than the {PAGE_BYTES_MAX} of any page"
        )
    try:
        found.check()
    except ObjectCorrupt as error:
        raise _corrupt(where, str(error)) from error
    return found


def _head(data: bytes, where: str) -> tuple[_Head, int]:
    """Return the head, and the byte at which it ends.  Check, in this order: checksum, structure, format version."""
    length = _LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH.size else 0
    end = _LENGTH.size + length
    sealed = data[_LENGTH.size : end]
    body, tag, checksum = sealed[:-_CHECKSUM_SIZE], sealed[-_CHECKSUM_SIZE:-4], sealed[-4:]
    if len(sealed) != length or tag != _CHECKSUM_TAG or checksum != struct.pack("<I", google_crc32c.value(body)):
        raise _corrupt(where, f"the checksum of its head does not match its {len(data)} bytes")
    head = _Head()
    try:
        head.ParseFromString(body)
    except DecodeError as error:
        raise _corrupt(where, "its head is not a protobuf message") from error
    if head.format_version != FORMAT_VERSION:
        raise FormatUnknown(
            f"{where}: state page format version {head.format_version} is not read by this release, "
            f"which knows {FORMAT_VERSION}: upgrade lancewal",
            object=where,
        )
    return head, end


def _broken(page: Page, problem: str) -> ObjectCorrupt:
    return ObjectCorrupt(f"page {page.number} of topic {page.topic}, id {page.topic_id}: {problem}")


def _corrupt(where: str, problem: str) -> ObjectCorrupt:
    return ObjectCorrupt(
        f"{where} is corrupt: {problem}; restore the object, or rebuild the states of its regions: `lancewal repair region`",
        object=where,
    )
