"""The state of a region: its generations, the state of each generation, and the owner of the newest.

A change of a region's state is a compare-and-swap of the page that holds it (``pages``).  Promises:

1. ``decode_state(encode_state(state)) == state``, and equal states give equal bytes.
2. A state that breaks a structural invariant (``RegionState.check``) is neither written nor read.
3. Any changed, missing or added byte is found: the message ends with a crc32c of everything before it.
4. A format version that this release does not know raises ``FormatUnknown``; such a message is never partly read.

Until a region has a row, its state counts the rejected records (``no_row_yet``).  A release that does not know the
count drops it.  A state without the count is taken for that of a region with a row.

On the wire this is the protobuf message ``MemWalIndexDetails`` (``proto/mem_wal.proto``); the checksum is an ordinary
last field, so any protobuf reader can read the message.  History pages, which hold MERGED generations that left the
state, are the same message, marked as a history page.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any, TypeAlias

import google_crc32c
from google.protobuf.message import DecodeError

from lancewal_core.errors import ActionNeeded, Corrupt, FormatUnknown, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, OwnerId, Position, Region, Sequence, TableVersion, TopicId
from lancewal_core.names.proto import mem_wal_pb2
from lancewal_core.names.words import FORM, is_word
from lancewal_core.region.flushes.u64_segment import encode_u64_segment
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.wal.entry import NoRowYet

FORMAT_VERSION = 1
_CHECKSUM_TAG = b"\xfd\x07"
"""Wire tag of the field ``checksum``: number 127, four bytes fixed."""
_CHECKSUM_SIZE = len(_CHECKSUM_TAG) + 4

NO_ROW_MS = -(1 << 63)
"""Highest record time of a generation without rows: below every time."""
_OWN_FIELDS_FROM = 100
"""First number of lancewal's own fields.  Lower numbers are those of the MemWAL index specification."""

_Message = mem_wal_pb2.MemWalIndexDetails


class GenerationState(Enum):
    """State of a generation, with the value that stored states have for it.  Each state leads only to the next one.
    One more change, MERGED to FLUSHED, needs a person's decision (``transitions.revived``)."""

    OPEN = 0
    SEALED = 1
    FLUSHED = 2
    MERGED = 3


_BY_VALUE = {state.value: state for state in GenerationState}
_SEALED, _FLUSHED, _MERGED = GenerationState.SEALED.value, GenerationState.FLUSHED.value, GenerationState.MERGED.value


@dataclass(frozen=True, slots=True)
class GenerationRecord:
    """One generation of a region.

    All its entries lie in one log.  They follow each other from ``first`` to ``next`` without a gap, so the record does
    not name them.  A reader of some entries can tell by ``wal.entry.is_chain`` whether they are all.
    """

    generation: Generation
    state: GenerationState
    owner: OwnerId
    log: LogId
    first: Position
    next: Position | None
    """Position after the generation's last entry; ``None`` while OPEN."""
    first_sequence: Sequence
    end_sequence: Sequence | None
    """Segments ``[first_sequence, end_sequence)`` of ``log`` may hold its entries; ``None`` while OPEN."""
    flush: str | None
    """Object key of the manifest of its flush; ``None`` before FLUSHED."""
    merged_version: TableVersion | None
    """Table version that merged the generation; ``None`` before MERGED."""
    merged_at_ms: int | None
    """Time at which the record became MERGED, in milliseconds since 1970, by the clock of the process that wrote it;
    ``None`` before that."""
    sealed_at_ms: int | None = None
    """Time at which the record became SEALED, in milliseconds since 1970, by the clock of the process that wrote it.
    ``None`` while OPEN, and if a repair rebuilt the record."""
    flushed_at_ms: int | None = None
    """Time at which the record first became FLUSHED, in milliseconds since 1970, by the clock of the process that
    wrote it.  ``None`` before that, and if a repair rebuilt the record."""
    record_times: RecordTimes | None = None
    """Lowest and highest record time of the generation's rows.  ``None`` while OPEN, if there are no rows, and if a
    repair could not find the times."""

    @property
    def record_time_max_ms(self) -> int | None:
        """Highest record time of the generation's rows; ``NO_ROW_MS`` if there are no rows, None if the time is not
        known.

        Sealing writes the time of sealing, and record times only if there are rows.  A record with the first and
        without the second therefore has no rows.
        """
        if self.record_times is not None:
            return self.record_times.max_ms
        return NO_ROW_MS if self.first == self.next or self.sealed_at_ms is not None else None

    def may_lie_in(self, sequence: int) -> bool:
        """Return whether the segment of ``log`` with this number may hold its entries."""
        return self.first_sequence <= sequence and (self.end_sequence is None or sequence < self.end_sequence)

    def problems(self) -> Iterator[str]:
        """Yield the faults of the record: fields that its state does not allow, or lacks.  No text is built for a
        sound record, since this runs for each generation of a thousand regions."""
        reached = self.state.value
        sealed, flushed, merged = reached >= _SEALED, reached >= _FLUSHED, reached >= _MERGED
        end = self.first if self.next is None else self.next
        end_sequence = self.first_sequence if self.end_sequence is None else self.end_sequence
        if self.generation < 1:
            yield "generations are numbered from 1"
        if not is_word(self.owner):
            yield f"its owner_id {self.owner[:60]!a} is not an identifier: {FORM}"
        if not is_word(self.log):
            yield f"its log {self.log[:60]!a} is not an identifier: {FORM}"
        if (self.next is not None) != sealed:
            yield "it has a next position before SEALED, or none from SEALED on"
        if (self.end_sequence is not None) != sealed:
            yield "it has an end sequence before SEALED, or none from SEALED on"
        if (self.flush is not None) != flushed:
            yield "it has a flush before FLUSHED, or none from FLUSHED on"
        if self.flush == "":
            yield "its flush has an empty key"
        if (self.merged_version is not None) != merged:
            yield "it has a merged version before MERGED, or is MERGED without one"
        if self.merged_version is not None and self.merged_version < 1:
            yield "table versions are numbered from 1"
        if (self.merged_at_ms is not None) != merged:
            yield "it has a merge time before MERGED, or is MERGED without one"
        if self.sealed_at_ms is not None and not sealed:
            yield "it has a time of sealing, but is OPEN"
        if self.flushed_at_ms is not None and not flushed:
            yield "it has a time of flushing before FLUSHED"
        if self.record_times is not None and self.first >= end:
            yield "it has record times, but covers no position"
        if not _is_range(self.record_times):
            yield f"its record times {self.record_times} are not a range"
        if not 0 <= self.first <= end:
            yield f"its positions {self.first} to {end} are not a range"
        if not 0 <= self.first_sequence <= end_sequence:
            yield f"{self.first_sequence} to {end_sequence} is not a range of sequence numbers"


def _is_range(times: RecordTimes | None) -> bool:
    return times is None or times.min_ms <= times.max_ms


@dataclass(frozen=True, slots=True)
class RegionState:
    """One version of a region's state."""

    region: Region
    contract_version: int
    generations: tuple[GenerationRecord, ...]
    """Ascending, contiguous generation numbers."""
    trimmed_generation: Generation
    """Newest trimmed generation: it and all before it may have lost their WAL entries and flushes.  0: nothing is
    trimmed."""
    trimmed: Position
    """Position at which the generation ``trimmed_generation`` ends."""
    write_id: str
    """Unique for each attempted write.  By it a writer tells a lost reply from a lost race."""
    trimmed_record_time_max_ms: int | None = None
    """Highest record time of all trimmed rows, ``NO_ROW_MS`` if the trimmed generations have no rows.  None if the time
    is not known, or nothing is trimmed."""
    no_row_yet: NoRowYet | None = None
    """Rejected records of all generations but the OPEN one, as long as none of these generations has a row.  None:
    one of them has a row, or that is not known."""

    @property
    def newest(self) -> GenerationRecord | None:
        return self.generations[-1] if self.generations else None

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of generations by the name of their state, in the order of states; states without one are left out."""
        found = Counter(record.state for record in self.generations)
        return {state.name.lower(): found[state] for state in GenerationState if found[state]}

    def flushed(self, merged: Position | None) -> Position | None:
        """Return the position up to which generations are flushed, at least ``merged``; None if neither is known."""
        ends = [record.next for record in self.generations if record.flush is not None]
        return max((end for end in (*ends, merged) if end is not None), default=None)

    def check(self, sound: Collection[Generation] = ()) -> None:
        """Raise ``ObjectCorrupt`` unless the structural invariants hold.

        Generation numbers and positions are contiguous, and only the newest generation may be OPEN.  No generation is
        in a later state than an earlier generation, and only MERGED ones are trimmed.  Each has the fields that its
        state demands.  ``sound`` names generations whose own records need no check, since they were checked before.
        """
        for problem in self._problems(sound):
            raise _broken(self.region, problem)

    def _problems(self, sound: Collection[Generation]) -> Iterator[str]:
        yield from _chain_problems(self, sound)
        if not is_word(self.write_id):
            yield f"its write_id {self.write_id[:60]!a} is not an identifier: {FORM}"
        if self.trimmed_generation < 0 or self.trimmed < 0:
            yield f"its trimmed boundary is impossible: generation {self.trimmed_generation}, position {self.trimmed}"
        if self.newest is not None and self.trimmed_generation > self.newest.generation:
            yield f"its trimmed generation {self.trimmed_generation} is above its newest one"
        told = self.no_row_yet
        if told is not None and (told.rejected < 0 or (told.kind and not (told.rejected and is_word(told.kind)))):
            yield (
                f"it counts an impossible number of rejected records of the kind {told.kind[:60]!a}: {told.rejected}"
            )
        if self.trimmed_record_time_max_ms is not None and not self.trimmed_generation:
            yield "it has a record time of trimmed rows, but no generation is trimmed"
        for record in self.generations:
            number = record.generation
            if number <= self.trimmed_generation and record.state is not GenerationState.MERGED:
                yield f"generation {number} is below the trimmed boundary, but its state is {record.state.name}"
            if number == self.trimmed_generation and record.next != self.trimmed:
                yield f"trimmed position {self.trimmed} is not the next position {record.next} of generation {number}"


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """MERGED generations that left the state: ascending, contiguous, at least one."""

    region: Region
    contract_version: int
    generations: tuple[GenerationRecord, ...]

    def check(self, sound: Collection[Generation] = ()) -> None:
        """Raise ``ObjectCorrupt`` unless this can be a history page.  ``sound`` is as in ``RegionState.check``."""
        for problem in _chain_problems(self, sound):
            raise _broken(self.region, problem)
        if not self.generations or self.generations[-1].state is not GenerationState.MERGED:
            raise _broken(self.region, "a history page holds MERGED generations, and at least one")


_Encoded: TypeAlias = Mapping[int, tuple["_Message.MemWal", GenerationRecord]]
"""Each generation by its number: the protobuf message, and the record that was decoded from it."""


@dataclass(frozen=True, slots=True)
class Before:
    """An earlier version of a region's state: its bytes, which were found sound, and the decoded state.

    Most generations of a long state are the same in every version.  With the earlier version, they need not be decoded,
    checked or encoded again.  The result is the same as without it.
    """

    data: bytes
    state: RegionState

    def encoded(self, region: Region) -> _Encoded:
        """Return the protobuf message and the record of each generation, by its number; nothing if the state is of
        another region."""
        if region != self.state.region:
            return {}
        messages = _Message.FromString(self.data[:-_CHECKSUM_SIZE]).mem_wal_list
        return {
            record.generation: (message, record)
            for message, record in zip(messages, self.state.generations, strict=True)
        }


def _chain_problems(content: RegionState | HistoryPage, sound: Collection[Generation]) -> Iterator[str]:
    """Yield the faults of a contract version, of generations and of their order."""
    for record in content.generations:
        if record.generation in sound:
            continue
        for problem in record.problems():
            yield f"generation {record.generation} ({record.state.name}): {problem}"
        if record.flush is not None and not paths.is_flush_manifest(record.flush):
            # A key from outside would be read, or replaced, wherever it leads.
            yield f"generation {record.generation} names {record.flush!r}, which is not the manifest of a flush"
    for earlier, later in pairwise(content.generations):
        pair = f"generations {earlier.generation} and {later.generation}"
        if later.generation != earlier.generation + 1:
            yield f"{pair} do not follow one another"
        if earlier.state is GenerationState.OPEN:
            yield f"generation {earlier.generation} is OPEN but not the newest"
        if later.state.value > earlier.state.value:
            yield f"{pair}: the later is {later.state.name}, the earlier only {earlier.state.name}"
        if later.first != earlier.next:
            yield f"{pair}: the later starts at {later.first}, the earlier ends at {earlier.next}"
    if content.contract_version < 1:
        yield f"contract versions are numbered from 1, not {content.contract_version}"


def _broken(region: Region, problem: str) -> ObjectCorrupt:
    return ObjectCorrupt(f"state of region {region.name}: {problem}", region=region.name)


# -- bytes -----------------------------------------------------------------------------------------------------


def encode_state(state: RegionState, before: Before | None = None) -> bytes:
    """Return the state as bytes.  Generations that are unchanged since ``before`` are not encoded again.  Raise
    ``ObjectCorrupt`` if the state breaks an invariant."""
    there = {} if before is None else before.encoded(state.region)
    same = _same(state.generations, there)
    state.check(same)
    message = _message(
        _Message.INDEX,
        state.region,
        state.contract_version,
        trimmed_generation=state.trimmed_generation,
        trimmed_position=state.trimmed,
        write_id=state.write_id,
        trimmed_record_time_max_ms=state.trimmed_record_time_max_ms,
    )
    message.mem_wal_list.extend(
        there[record.generation][0] if record.generation in same else _encode_generation(state.region, record)
        for record in state.generations
    )
    if state.no_row_yet is not None:
        message.no_row_yet.SetInParent()
        message.no_row_yet.rejected, message.no_row_yet.kind = state.no_row_yet.rejected, state.no_row_yet.kind
    return _seal(message)


def decode_state(data: bytes, where: str, region: Region | None = None, before: Before | None = None) -> RegionState:
    """Inverse of ``encode_state``; ``where`` is the key of the object that holds the bytes.

    Raise ``ObjectCorrupt``, also if the state is not that of ``region``, or ``FormatUnknown``.
    """
    try:
        message = _unseal(data, where, _Message.INDEX)
    except Corrupt as error:  # of all that lie in the object, this region's alone
        if region is not None:
            raise type(error)(f"region {region.name}: {error}", region=region.name, **error.where) from error
        raise
    found = _region(message, where, region)
    there = {} if before is None else before.encoded(found)
    generations = _generations(message, where, there)
    index = RegionState(
        region=found,
        contract_version=message.contract_version,
        generations=generations,
        trimmed_generation=Generation(message.trimmed_generation),
        trimmed=Position(message.trimmed_position),
        write_id=message.write_id,
        trimmed_record_time_max_ms=_optional(message, "trimmed_record_time_max_ms"),
        no_row_yet=(
            NoRowYet(message.no_row_yet.rejected, message.no_row_yet.kind) if message.HasField("no_row_yet") else None
        ),
    )
    _check_read(index, where, _same(generations, there))
    return index


def encode_history(region: Region, contract_version: int, generations: tuple[GenerationRecord, ...]) -> bytes:
    """Return a history page as an object's bytes.  Raise ``ObjectCorrupt`` if the generations cannot be a page."""
    HistoryPage(region, contract_version, generations).check()
    message = _message(_Message.HISTORY, region, contract_version)
    message.mem_wal_list.extend(_encode_generation(region, record) for record in generations)
    return _seal(message)


def decode_history(data: bytes, where: str) -> HistoryPage:
    """Inverse of ``encode_history``; ``where`` is the page's object key.  Errors are those of ``decode_state``."""
    message = _unseal(data, where, _Message.HISTORY)
    key = paths.parse_history_page(where)
    region = _region(message, where, None if key is None else key[0])
    page = HistoryPage(region, message.contract_version, _generations(message, where))
    _check_read(page, where)
    if key is not None and page.generations[0].generation != key[1]:
        raise _corrupt(where, f"its first generation is {page.generations[0].generation}, not the one in its key")
    return page


def encode_specified(
    regions: Iterable[tuple[Region, Iterable[tuple[GenerationRecord, Seq[Position] | range]]]],
) -> bytes:
    """Encode generations of several regions as one ``MemWalIndexDetails`` with the specification's fields alone.

    Each generation comes with the ids of its entries, which are their first positions.  This is for readers that know
    the specification, not lancewal: it has no checksum, and ``decode_state`` refuses it.
    """
    message = _Message()
    for region, records in regions:
        for record, entries in records:
            mem_wal = _encode_generation(region, record)
            mem_wal.wal_entries = encode_u64_segment(entries)
            message.mem_wal_list.append(mem_wal)
    for mem_wal in message.mem_wal_list:
        for field in _Message.MemWal.DESCRIPTOR.fields:
            if field.number >= _OWN_FIELDS_FROM:
                mem_wal.ClearField(field.name)
    return message.SerializeToString(deterministic=True)


def _check_read(content: RegionState | HistoryPage, where: str, sound: Collection[Generation] = ()) -> None:
    try:
        content.check(sound)
    except ObjectCorrupt as error:
        raise _corrupt(where, str(error)) from error


def _message(content: _Message.Content, region: Region, contract_version: int, **more: Any) -> _Message:
    return _Message(
        format_version=FORMAT_VERSION,
        content=content,
        topic=region.topic,
        topic_id=region.topic_id,
        partition=region.partition,
        contract_version=contract_version,
        **more,
    )


def _encode_generation(region: Region, record: GenerationRecord) -> _Message.MemWal:
    low, high = record.record_times or (None, None)
    return _Message.MemWal(
        id=_Message.MemWalId(region=region.name, generation=record.generation),
        mem_table_location=record.flush or "",
        wal_location=paths.log_prefix(record.log),
        state=record.state.name,
        owner_id=record.owner,
        last_updated_dataset_version=record.merged_version or 0,
        first_position=record.first,
        next_position=record.next,
        first_sequence=record.first_sequence,
        end_sequence=record.end_sequence,
        merged_at_ms=record.merged_at_ms,
        sealed_at_ms=record.sealed_at_ms,
        flushed_at_ms=record.flushed_at_ms,
        record_time_min_ms=low,
        record_time_max_ms=high,
    )


def _generations(message: _Message, where: str, there: _Encoded | None = None) -> tuple[GenerationRecord, ...]:
    """Decode the generations.  Those that are unchanged from ``there`` are taken from it."""
    name = Region(message.topic, TopicId(message.topic_id), message.partition).name
    found: list[GenerationRecord] = []
    for mem_wal in message.mem_wal_list:
        known = there.get(mem_wal.id.generation) if there else None
        same = known is not None and known[0] == mem_wal
        found.append(known[1] if known and same else _decode_generation(mem_wal, name, where))
    return tuple(found)


def _same(generations: Iterable[GenerationRecord], there: _Encoded) -> set[Generation]:
    """Return the generations whose records are the very objects in ``there``."""
    if not there:
        return set()
    return {r.generation for r in generations if r.generation in there and there[r.generation][1] is r}


def _decode_generation(mem_wal: _Message.MemWal, region_name: str, where: str) -> GenerationRecord:
    number = mem_wal.id.generation
    log = paths.parse_log_prefix(mem_wal.wal_location)
    if mem_wal.id.region != region_name:
        raise _corrupt(where, f"generation {number} is of another region, {mem_wal.id.region!r}")
    if log is None:
        raise _corrupt(where, f"generation {number} has the WAL location {mem_wal.wal_location!r}, which names no log")
    if mem_wal.wal_entries:
        raise _corrupt(where, f"generation {number} lists its entries, which a stored state never does")
    state = _BY_VALUE.get(mem_wal.state)
    if state is None:
        raise FormatUnknown(
            f"{where}: generation {number} has state {mem_wal.state}, which this release does not know: upgrade "
            "lancewal",
            object=where,
        )
    times = None
    if mem_wal.HasField("record_time_min_ms"):
        times = RecordTimes(mem_wal.record_time_min_ms, mem_wal.record_time_max_ms)
    if mem_wal.HasField("record_time_min_ms") != mem_wal.HasField("record_time_max_ms"):
        raise _corrupt(where, f"generation {number} has only one of its two record times, the lowest or the highest")
    return GenerationRecord(
        generation=Generation(number),
        state=state,
        owner=OwnerId(mem_wal.owner_id),
        log=log,
        first=Position(mem_wal.first_position),
        next=Position(mem_wal.next_position) if mem_wal.HasField("next_position") else None,
        first_sequence=Sequence(mem_wal.first_sequence),
        end_sequence=Sequence(mem_wal.end_sequence) if mem_wal.HasField("end_sequence") else None,
        flush=mem_wal.mem_table_location or None,
        merged_version=TableVersion(mem_wal.last_updated_dataset_version) or None,
        merged_at_ms=_optional(mem_wal, "merged_at_ms"),
        sealed_at_ms=_optional(mem_wal, "sealed_at_ms"),
        flushed_at_ms=_optional(mem_wal, "flushed_at_ms"),
        record_times=times,
    )


def _optional(message: _Message | _Message.MemWal, field: str) -> int | None:
    return getattr(message, field) if message.HasField(field) else None


def _region(message: _Message, where: str, expected: Region | None) -> Region:
    region = Region(message.topic, TopicId(message.topic_id), message.partition)
    try:
        paths.region_prefix(region, None)
    except ActionNeeded as error:
        raise _corrupt(where, str(error)) from error
    if expected is not None and region != expected:
        raise _corrupt(where, f"it is of another region, {region.name}")
    return region


def _seal(message: _Message) -> bytes:
    """Return the message's bytes with the checksum as the last field."""
    body = message.SerializeToString(deterministic=True)
    return body + _CHECKSUM_TAG + struct.pack("<I", google_crc32c.value(body))


def _unseal(data: bytes, where: str, content: _Message.Content) -> _Message:
    """Return the message in these bytes.  Check, in this order: checksum, structure, format version, kind of
    content."""
    body, tag, checksum = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:-4], data[-4:]
    if tag != _CHECKSUM_TAG or checksum != struct.pack("<I", google_crc32c.value(body)):
        raise _corrupt(where, f"the checksum does not match its {len(data)} bytes")
    message = _Message()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise _corrupt(where, "it is not a protobuf message") from error
    if message.format_version != FORMAT_VERSION:
        raise FormatUnknown(
            f"{where}: region state format version {message.format_version} is not read by this release, "
            f"which knows {FORMAT_VERSION}: upgrade lancewal",
            object=where,
        )
    if message.content != content:
        names = {_Message.INDEX: "a region's state", _Message.HISTORY: "a history page"}
        raise _corrupt(where, f"it is {names.get(message.content, 'something else')}, not {names[content]}")
    return message


def _corrupt(where: str, problem: str) -> ObjectCorrupt:
    return ObjectCorrupt(
        f"{where} is corrupt: {problem}; restore the object, or rebuild the region's state: `lancewal repair region`",
        object=where,
    )
