"""The manifest of a flush: generations that were flushed together, and where the content of each lies.

Guarantees
 1. A *part* is one generation of one region.  Parts share the rows of the data files and the bytes of ``deletes.arrow``
    and ``patches.arrow``.  Each part's share follows the shares of the parts before it.  The manifest gives only the
    size of a share, never its start.  So no manifest can let a row count for two parts, or for none.
 2. Together the parts have exactly the rows of the data files.  No data file is named twice, and no generation is two
    parts.
 3. The manifest names files at two places only: side files in its own folder, data files in the table's data folder.

A caller that has a generation's record takes its part as a ``FlushedGeneration``.  A manifest without that part is
damaged, since the record names the manifest.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import google_crc32c

from lancewal_core.errors import FLUSH_DAMAGED, FormatUnknown, ObjectCorrupt, ObjectMissing
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Position, Region
from lancewal_core.names.paths import FlushFile
from lancewal_core.region.flushes.fragment import fragment_text
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.store.json_object import WHOLE_MAX, JsonFault, JsonObject, region_named
from lancewal_core.store.object_kinds import bytes_max
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.protocol import files_of, fragment_bytes, fragment_rows

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part's share of a side file: an Arrow IPC stream of its own.  ``size`` is in bytes; ``crc32c`` is that of the
    stream."""

    rows: int
    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class FlushPart:
    """One generation of one region, as the manifest describes it."""

    region: Region
    generation: Generation
    first: Position
    next: Position
    rows: int
    """Number of keys in state Row.  Their rows are in the data files."""
    deletes: Stretch | None
    patches: Stretch | None
    keys_crc32c: int
    """Checksum of the keys in state Row, in the order of their rows (``key_checksum.key_sum``)."""
    sealed_at_ms: int | None = None
    record_times: RecordTimes | None = None
    """Lowest and highest record time of the generation's rows; None if it has no rows, or the times are not known.
    ``record_times`` and ``sealed_at_ms`` are copied from the generation's record."""
    repaired: bool = False
    """True if ``lancewal repair segment`` made the flush: some records that were folded are not in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFile(Stretch):
    """Place of a part's Gone keys, or of its Partial rows: the object key of the side file, and the byte where the
    share begins."""

    key: str
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushedGeneration(FlushPart):
    """One part of a flush, and where its content lies in the files of the flush."""

    key: str
    """Key of the manifest."""
    contract_version: int
    fragments: tuple[str, ...]
    """Lance fragments of the whole flush as JSON, each with one data file."""
    parts: int
    """Number of parts of the flush."""
    rows_from: int
    """Number of rows in the flush's data files that lie before the rows of this part."""
    rows_bytes: int
    """Bytes of the flush's data files.  If the flush has several parts: about this part's share of the bytes, by its
    number of rows."""
    deletes: SideFile | None
    patches: SideFile | None

    @property
    def shared(self) -> bool:
        """Whether the flush has other parts."""
        return self.parts > 1

    @property
    def changes(self) -> int:
        """Number of keys that the generation touches."""
        return self.rows + sum(side.rows for side in (self.deletes, self.patches) if side is not None)

    @property
    def nbytes(self) -> int:
        """Stored bytes of the generation's rows, deletes and patches."""
        return self.rows_bytes + sum(side.size for side in (self.deletes, self.patches) if side is not None)


@dataclass(frozen=True)
class Flush:
    """A flush, as its manifest describes it."""

    key: str
    contract_version: int
    fragments: tuple[str, ...]
    parts: tuple[FlushPart, ...]

    @cached_property
    def generations(self) -> tuple[FlushedGeneration, ...]:
        """All parts in the order of the manifest, each with its place in the files."""
        name = flush_name(self.key)
        rows, starts = 0, Counter[FlushFile]()
        nbytes, all_rows = sum(map(fragment_bytes, self.fragments)), sum(part.rows for part in self.parts)

        def placed(file: FlushFile, stretch: Stretch | None) -> SideFile | None:
            if stretch is None:
                return None
            start = starts[file]
            starts[file] += stretch.size
            return SideFile(**_fields(stretch), key=paths.flush_file(name, file), start=start)

        found = []
        for part in self.parts:
            sides = {
                "deletes": placed(FlushFile.DELETES, part.deletes),
                "patches": placed(FlushFile.PATCHES, part.patches),
            }
            found.append(
                FlushedGeneration(
                    **{**_fields(part), **sides},
                    key=self.key,
                    contract_version=self.contract_version,
                    fragments=self.fragments,
                    parts=len(self.parts),
                    rows_from=rows,
                    rows_bytes=nbytes * part.rows // all_rows if all_rows else 0,
                )
            )
            rows += part.rows
        return tuple(found)

    @cached_property
    def _by_generation(self) -> dict[tuple[Region, Generation], FlushedGeneration]:
        return {(found.region, found.generation): found for found in self.generations}

    def generation_of(self, region: Region, generation: Generation) -> FlushedGeneration:
        """Return the part of one generation.  Raises ``ObjectCorrupt`` if the flush has no such part."""
        found = self._by_generation.get((region, generation))
        if found is not None:
            return found
        raise ObjectCorrupt(
            f"{self.key} is not a flush of generation {generation} of region {region.name}; {FLUSH_DAMAGED}",
            object=self.key,
            region=region.name,
        )


def _fields(value: Stretch | FlushPart) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def flush_name(key: str) -> str:
    """Return the name of the flush whose manifest has this key."""
    parsed = paths.parse_flush_file(key)
    if parsed is None or parsed[1] is not FlushFile.MANIFEST:
        raise ValueError(f"{key} is not the manifest of a flush")
    return parsed[0]


def read_flush(store: ObjectStore, key: str) -> Flush:
    """Read a manifest.  ``ObjectMissing``, ``ObjectCorrupt`` or ``FormatUnknown`` names its key."""
    data = store.get(key)
    if data is None:
        raise ObjectMissing(f"{key} is missing", object=key)
    return decode_flush(data, key)


def read_flushed_generation(store: ObjectStore, key: str, region: Region, generation: Generation) -> FlushedGeneration:
    """Read the manifest, and return the part of a generation."""
    return read_flush(store, key).generation_of(region, generation)


def decode_flush(data: bytes, key: str) -> Flush:
    """Inverse of ``encode_flush``.  Raises ``ObjectCorrupt`` or ``FormatUnknown``."""
    try:
        outer = JsonObject.parse(data)
        content = outer.inner("flush")
        if google_crc32c.value(_canonical(content.members)) != outer.whole("crc32c"):
            raise JsonFault("its checksum does not match")
        if content.whole("format") != FORMAT:
            raise FormatUnknown(
                f"{key}: this release does not read flush format {content.whole('format')}: upgrade lancewal",
                object=key,
            )
        return _flush(content, key)
    except (JsonFault, RecursionError) as error:
        raise ObjectCorrupt(f"{key} is corrupt: {error}; {FLUSH_DAMAGED}", object=key) from error


def _flush(content: JsonObject, key: str) -> Flush:
    name = content.word("name")
    if key != paths.flush_file(name, FlushFile.MANIFEST):
        raise JsonFault(f"the object is the manifest of another flush, {name}")
    fragments = tuple(fragment_text(f) for f in content.values("fragments"))
    if len(files_of(fragments)) != len(fragments):
        raise JsonFault("it names a data file twice")
    parts = []
    for value in content.values("parts"):
        if not isinstance(value, dict):
            raise JsonFault("a part in it is not a JSON object")
        parts.append(_part(JsonObject(value, "parts")))
    if len({(part.region, part.generation) for part in parts}) != len(parts) or not parts:
        raise JsonFault("the manifest has no parts, or lists one generation twice")
    if sum(part.rows for part in parts) != sum(map(fragment_rows, fragments)):
        raise JsonFault("its parts do not have as many rows as its data files")
    for file, stretches in (
        (FlushFile.DELETES, [p.deletes for p in parts]),
        (FlushFile.PATCHES, [p.patches for p in parts]),
    ):
        if sum(s.size for s in stretches if s is not None) > bytes_max(paths.flush_file(name, file)):
            raise JsonFault(f"by its parts, {file.value} has more bytes than such a file may have")
    return Flush(key, content.whole("contract_version", low=1), fragments, tuple(parts))


def _part(content: JsonObject) -> FlushPart:
    first = content.whole("first")
    next_ = content.whole("next", low=first)
    repaired = "repaired" in content.members
    if repaired and content.raw("repaired") is not True:
        raise JsonFault("its 'repaired' is not true")
    return FlushPart(
        region=region_named(content.text("region")),
        generation=Generation(content.whole("generation", low=1)),
        first=Position(first),
        next=Position(next_),
        rows=content.whole("rows"),
        deletes=_stretch(content, "deletes"),
        patches=_stretch(content, "patches"),
        keys_crc32c=content.whole("keys_crc32c", high=2**32 - 1),
        sealed_at_ms=content.whole_or_null("sealed_at_ms"),
        record_times=_record_times(content),
        repaired=repaired,
    )


def _stretch(content: JsonObject, name: str) -> Stretch | None:
    found = content.optional(name)
    if found is None:
        return None
    return Stretch(found.whole("rows", low=1), found.whole("size", low=1), found.whole("crc32c", high=2**32 - 1))


def _record_times(content: JsonObject) -> RecordTimes | None:
    lowest, highest = "record_time_min_ms", "record_time_max_ms"
    if content.raw(lowest) is None and content.raw(highest) is None:
        return None
    min_ms = content.whole(lowest, low=-WHOLE_MAX - 1)
    return RecordTimes(min_ms, content.whole(highest, low=min_ms))


def encode_flush(flush: Flush) -> bytes:
    """Return the manifest of a flush as bytes."""
    content = {
        "format": FORMAT,
        "name": flush_name(flush.key),
        "contract_version": flush.contract_version,
        "fragments": [json.loads(f) for f in flush.fragments],
        "parts": [_members(part) for part in flush.parts],
    }
    summed = {"flush": content, "crc32c": google_crc32c.value(_canonical(content))}
    return json.dumps(summed, separators=(",", ":")).encode()  # with indents it would be made in Python, not in C


def _members(part: FlushPart) -> dict[str, object]:
    low, high = part.record_times or (None, None)
    return {
        "region": part.region.name,
        "generation": part.generation,
        "first": part.first,
        "next": part.next,
        "rows": part.rows,
        "deletes": _stretch_members(part.deletes),
        "patches": _stretch_members(part.patches),
        "keys_crc32c": part.keys_crc32c,
        "sealed_at_ms": part.sealed_at_ms,
        "record_time_min_ms": low,
        "record_time_max_ms": high,
        **({"repaired": True} if part.repaired else {}),
    }


def _stretch_members(stretch: Stretch | None) -> dict[str, int] | None:
    return None if stretch is None else {"rows": stretch.rows, "size": stretch.size, "crc32c": stretch.crc32c}


def _canonical(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def by_flush(flushes: Sequence[FlushedGeneration]) -> list[list[FlushedGeneration]]:
    """Return the parts grouped by flush, each group in the flush's order."""
    found: dict[str, list[FlushedGeneration]] = {}
    for flushed in flushes:
        found.setdefault(flushed.key, []).append(flushed)
    return [sorted(some, key=lambda s: (s.rows_from, s.generation)) for some in found.values()]
