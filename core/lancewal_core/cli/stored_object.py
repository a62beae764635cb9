"""Reading one stored object of lancewal for people: its kind, and its content.

Guarantees
 1. An object is read by the decoder that the services use, with all of its checks.  So the output shows what they would
    see.  An object that they would refuse is refused with the same error, which names the object.
 2. No row is shown: positions, counts, names, sizes.
 3. Only reads.

The content of an object is a mapping of names to JSON values; a list of mappings is a table.  Names that end in ``_ms``
are milliseconds since 1970 (UTC).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, TypeVar

import google_crc32c
import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from lancewal_core.errors import InvalidInput, ObjectCorrupt, ObjectMissing
from lancewal_core.keys.catalog import decode_catalog
from lancewal_core.keys.conflicts import decode_as
from lancewal_core.keys.run import NO_REGION, decode_part
from lancewal_core.names import paths
from lancewal_core.names.ids import Page, Region
from lancewal_core.names.paths import FlushFile
from lancewal_core.process.clock import SystemClock
from lancewal_core.region.flush_files import side_rows
from lancewal_core.region.flushes.manifest import (
    Flush,
    FlushedGeneration,
    FlushPart,
    SideFile,
    decode_flush,
    flush_name,
)
from lancewal_core.region.loss_record import LossRecord
from lancewal_core.region.pages.page_chain import newest
from lancewal_core.region.pages.state_page import PageRecord, decode_page
from lancewal_core.region.state import GenerationRecord, RegionState, decode_history
from lancewal_core.region.states import page_family, state_in
from lancewal_core.store.object_kinds import kind_of
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.contract import decode_contract, read_contract
from lancewal_core.table.control import Control
from lancewal_core.table.drain import Drain
from lancewal_core.table.load_record import LoadRecord
from lancewal_core.table.proof.store_proof import StoreWay
from lancewal_core.table.protocol import fragment_files
from lancewal_core.table.subscriptions.stored import StoredSubscription, SubscriptionNames
from lancewal_core.table.watermarks import decode_merge_finished, decode_merge_record
from lancewal_core.table.watermarks import kind_of as kind_of_record
from lancewal_core.wal.bundle import decode_bundle
from lancewal_core.wal.entry import EntryHeader
from lancewal_core.wal.segment import Fence, decode_segment, decode_trailer
from lancewal_core.wal.writer_schemas import StoredSchema

T = TypeVar("T")
Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Inspected:
    """The content of one object, for people.  ``content``: see the module docstring."""

    key: str
    kind: str
    size: int
    content: Content


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object, as it is passed to the function for its kind in ``SHOWERS``."""

    store: ObjectStore
    key: str
    data: bytes


Shower: TypeAlias = Callable[[StoredObject], Content]
"""Function that checks an object of one kind, and returns its content."""


def inspect_object(store: ObjectStore, key: str) -> Inspected:
    """Return the content of the object at ``key``.

    Raises ``InvalidInput`` for a key that is not lancewal's, or of a kind that cannot be shown; also
    ``ObjectMissing``, ``ObjectCorrupt``, ``FormatUnknown``.
    """
    kind = kind_of(key)
    show = None if kind is None else SHOWERS.get(kind.name)
    if kind is None or show is None:
        raise InvalidInput(
            f"{key!r} is not the key of an object that can be inspected. These can be: contract, control, drain, segment or "
            "fence, bundle, state page, history page, subscription. Also: flush, accepted loss, merge record, keys in "
            "conflict, key catalog, part of a key run. Give the complete key, with the digits of the version",
            object=key,
        )
    data = store.get(key)
    if data is None:
        raise ObjectMissing(f"{key} is missing", object=key)
    content = show(StoredObject(store, key, data))
    fence = kind.name == "segment" and "entries" not in content  # it took the segment's place
    return Inspected(key, "fence" if fence else kind.name, len(data), content)


def inspect_region(store: ObjectStore, region: Region, page: Page) -> Inspected:
    """Return the newest state of a region.  ``page``: the page in which it lies.  Raises ``InvalidInput`` if the
    region has none."""
    found = newest(store, page_family(page), SystemClock())
    key = paths.page_version(page, 1 if found is None else found.version.version)
    content = None if found is None else decode_page(found.version.data, key)
    state = None if content is None else state_in(content, region, key)
    if found is None or content is None or state is None:
        raise InvalidInput(
            f"partition {region.name} has no state: no ingest process of this table has opened it yet",
            region=region.name,
        )
    shown = {
        "version": found.version.version,
        **_index(state, content.records[region.partition]),
        "generations": [_generation(record) for record in state.generations],
    }
    return Inspected(key, "state of a partition", len(content.records[region.partition].data), shown)


def _members(decode: Callable[[bytes, str], BaseModel], told: Callable[[str], Content] = lambda key: {}) -> Shower:
    """Return a function that shows all members of a model.  ``told`` returns what the object's key says, which comes
    first."""
    return lambda stored: {**told(stored.key), **decode(stored.data, stored.key).model_dump(mode="json")}


def show_control(stored: StoredObject) -> Content:
    control = Control.decode(stored.data, stored.key)
    return {
        "version": paths.parse_control_version(stored.key),
        "ingest_paused_until_ms": control.ingest,
        "flusher_paused_until_ms": control.flusher,
        "write_id": control.write_id,
    }


def show_writer_schema(stored: StoredObject) -> Content:
    key, version = paths.parse_writer_schema_version(stored.key) or ("", 0)
    found = StoredSchema.decode(stored.data, stored.key).model_dump(mode="json")
    return {"schema": key, "version": version, **found}


def show_subscription_names(stored: StoredObject) -> Content:
    version = paths.parse_subscription_names(stored.key)
    names = SubscriptionNames.decode(stored.data, stored.key)
    ids = [{"name": name, "id": id} for name, id in sorted(names.ids.items())]
    return {"version": version, "subscriptions": ids, "write_id": names.write_id}


def show_segment(stored: StoredObject) -> Content:
    trailer = decode_trailer(stored.data, stored.key, len(stored.data))
    if isinstance(trailer, Fence):
        return asdict(trailer)
    decode_segment(stored.data, stored.key)  # the rows' own checks
    entries = [
        {
            "region": header.region.name,
            "first": header.first,
            "next": header.next,
            "rows": header.row_count,
            **_record_times(header),
            "bytes": header.nbytes,
            "contract_version": header.contract_version,
            "rejected": [f"{rejected.offset} {rejected.kind}" for rejected in header.rejected],
        }
        for header in trailer.entries
    ]
    return {
        "log": trailer.log,
        "sequence": trailer.sequence,
        "writer": trailer.writer,
        "written_at_ms": trailer.written_at_ms,
        "entries": entries,
    }


def show_bundle(stored: StoredObject) -> Content:
    bundle = decode_bundle(stored.data, stored.key)
    copies = [
        {
            "sequence": copy.segment.sequence,
            "size": copy.size,
            "etag": copy.etag,
            "written_at_ms": copy.segment.written_at_ms,
            "entries": len(copy.segment.entries),
            "rows": sum(entry.row_count for entry in copy.segment.entries),
        }
        for copy in bundle.copies
    ]
    return {"log": bundle.log, "first": bundle.first, "writer": bundle.writer, "segments": copies}


def show_page(stored: StoredObject) -> Content:
    """Show all regions of a page, each with its newest generation.  Every record of the page is checked."""
    content = decode_page(stored.data, stored.key)
    _, version = _known(paths.parse_page_version(stored.key))
    page = content.page
    shown = []
    for partition, record in content.records.items():
        state = state_in(content, Region(page.topic, page.topic_id, partition), stored.key)
        if state is not None:
            newest_state = (
                "-" if state.newest is None else f"{state.newest.generation} {state.newest.state.name.lower()}"
            )
            shown.append(
                {**_index(state, record), "generations": len(state.generations), "newest_generation": newest_state}
            )
    return {
        "version": version,
        "topic": page.topic,
        "topic_id": page.topic_id,
        "page": page.number,
        "regions_per_page": content.regions_per_page,
        "write_id": content.write_id,
        "regions": shown,
    }


def _index(state: RegionState, record: PageRecord) -> Content:
    return {
        "region": state.region.name,
        "contract_version": state.contract_version,
        "trimmed_generation": state.trimmed_generation,
        "trimmed_position": state.trimmed,
        "trimmed_record_time_max_ms": state.trimmed_record_time_max_ms,
        "write_id": state.write_id,
        "changed_at_ms": record.changed_at_ms,
    }


def show_history(stored: StoredObject) -> Content:
    page = decode_history(stored.data, stored.key)
    return {
        "region": page.region.name,
        "contract_version": page.contract_version,
        "generations": [_generation(record) for record in page.generations],
    }


def _generation(record: GenerationRecord) -> Content:
    return {
        "generation": record.generation,
        "state": record.state.name.lower(),
        "first": record.first,
        "next": record.next,
        "log": record.log,
        "first_sequence": record.first_sequence,
        "end_sequence": record.end_sequence,
        "owner": record.owner,
        "merged_version": record.merged_version,
        "sealed_at_ms": record.sealed_at_ms,
        "flushed_at_ms": record.flushed_at_ms,
        "merged_at_ms": record.merged_at_ms,
        **_record_times(record),
        "flush": record.flush,
    }


def _record_times(of: EntryHeader | GenerationRecord | FlushPart) -> Content:
    low, high = of.record_times or (None, None)
    return {"record_time_min_ms": low, "record_time_max_ms": high}


def show_key_catalog(stored: StoredObject) -> Content:
    catalog = decode_catalog(stored.data, stored.key)
    return {
        "version": paths.parse_key_catalog_version(stored.key),
        "write_id": catalog.write_id,
        "runs": [
            {"name": r.name, "entries": r.entries, "files": len(r.files), "parts": len(r.parts)} for r in catalog.runs
        ],
        "parts": [{"run": r.name, **part.model_dump()} for r in catalog.runs for part in r.parts],
        "files": [{"run": r.name, **file.model_dump()} for r in catalog.runs for file in r.files],
        "regions": [{"run": r.name, **region.model_dump()} for r in catalog.runs for region in r.regions],
    }


def show_key_part(stored: StoredObject) -> Content:
    entries = decode_part(pa.py_buffer(stored.data), stored.key)
    numbers = entries.keys.numbers
    return {
        "entries": len(entries),
        "numbers_are_keys": entries.keys.texts is None,
        "first": int(numbers[0]) if len(numbers) else None,
        "last": int(numbers[-1]) if len(numbers) else None,
        "ascending": bool((np.diff(numbers) >= 0).all()),
        "regions_known": 0 if entries.regions is None else int((entries.regions != NO_REGION).sum()),
        "crc32c": google_crc32c.value(stored.data),
    }


def show_flush(stored: StoredObject) -> Content:
    found = decode_flush(stored.data, stored.key)
    return {
        "flush": flush_name(stored.key),
        "contract_version": found.contract_version,
        "data_files": [file for fragment in found.fragments for file in fragment_files(fragment)],
        "generations": [
            {
                "region": part.region.name,
                "generation": part.generation,
                "first": part.first,
                "next": part.next,
                "rows": part.rows,
                "deletes": part.deletes.rows if part.deletes else 0,
                "patches": part.patches.rows if part.patches else 0,
                "sealed_at_ms": part.sealed_at_ms,
                **_record_times(part),
                "repaired": part.repaired,
            }
            for part in found.parts
        ],
    }


def show_side_file(stored: StoredObject) -> Content:
    """Show the keys that are Gone, or the Partial rows, of a flush.  The file is checked against the manifest beside
    it, if there is one."""
    name, file = _known(paths.parse_flush_file(stored.key))
    manifest = paths.flush_file(name, FlushFile.MANIFEST)
    written = stored.store.get(manifest)
    shown: list[Content] = []
    if written is not None:
        shown = [_stretch(stored, manifest, side, of) for side, of in _sides(decode_flush(written, manifest), file)]
        if sum(of["bytes"] for of in shown) != len(stored.data):
            raise ObjectCorrupt(
                f"{stored.key} is corrupt: {manifest} lists another size or checksum for it", object=stored.key
            )
    return {
        "flush": name,
        "finished_attempt": written is not None,
        "crc32c": google_crc32c.value(stored.data),
        "generations": shown,
    }


def _sides(flush: Flush, file: FlushFile) -> list[tuple[SideFile, FlushedGeneration]]:
    found = [(s.deletes if file is FlushFile.DELETES else s.patches, s) for s in flush.generations]
    return [(side, flushed) for side, flushed in found if side is not None]


def _stretch(stored: StoredObject, manifest: str, side: SideFile, of: FlushedGeneration) -> Content:
    data = stored.data[side.start : side.start + side.size]
    if (len(data), google_crc32c.value(data)) != (side.size, side.crc32c):
        raise ObjectCorrupt(
            f"{stored.key} is corrupt: {manifest} lists another size or checksum for it", object=stored.key
        )
    try:
        rows = side_rows(data, side.rows)
    except (ObjectCorrupt, pa.ArrowException, OSError, ValueError) as error:
        raise ObjectCorrupt(f"{stored.key} is corrupt: {str(error)[:300]}", object=stored.key) from error
    return {
        "region": of.region.name,
        "generation": of.generation,
        "rows": rows.num_rows,
        "bytes": side.size,
        "columns": [f"{field.name} {field.type}" for field in rows.schema],
    }


def show_merge_record(stored: StoredObject) -> Content:
    in_force = decode_merge_record(stored.data, stored.key)
    return {
        "version": paths.parse_merge_record(stored.key),
        "kind": kind_of_record(stored.data, stored.key),
        "set_by": in_force.version,
        "merge": in_force.merge,
        "watermarks": [
            {"region": region.name, "generation": mark.generation, "next": mark.next}
            for region, mark in sorted(in_force.regions.items())
        ],
        **({} if in_force.conflicts is None else {"conflicts": in_force.conflicts.members()}),
    }


def show_conflicts(stored: StoredObject) -> Content:
    contract = read_contract(stored.store, "the table")
    found = decode_as(stored.data, stored.key, stored.store, contract)
    return {
        "merge": paths.parse_conflicts_object(stored.key),
        "sha256": hashlib.sha256(stored.data).hexdigest(),
        "keys_that_wait": found.waiting_keys.num_rows,
        "regions": [
            {
                "region": region.name,
                "waiting": found.waiting_of(region).num_rows,
                "owns": found.owned_by(region).num_rows,
            }
            for region in found.regions
        ],
    }


def show_merge_finished(stored: StoredObject) -> Content:
    merge = decode_merge_finished(stored.data, stored.key)
    return {"version": paths.parse_merge_finished(stored.key), "merge": merge}


def _known(parsed: T | None) -> T:
    assert parsed is not None, "the reader was chosen by this parser"
    return parsed


SHOWERS: Mapping[str, Shower] = {
    "segment": show_segment,
    "bundle": show_bundle,
    "flush": show_flush,
    "deleted keys": show_side_file,
    "patches": show_side_file,
    "part of a key run": show_key_part,
    "state page": show_page,
    "key catalog": show_key_catalog,
    "history page": show_history,
    "keys in conflict": show_conflicts,
    "contract": _members(decode_contract),
    "control": show_control,
    "drain": _members(Drain.decode, lambda key: {"version": paths.parse_drain_version(key)}),
    "merge record": show_merge_record,
    "finished merge": show_merge_finished,
    "accepted loss": _members(LossRecord.decode),
    "beginning of a load": _members(LoadRecord.decode, lambda key: {"name": paths.parse_load_record(key)}),
    "subscription": _members(
        StoredSubscription.decode, lambda key: {"of": _known(paths.parse_subscription_version(key))[1]}
    ),
    "list of subscriptions": show_subscription_names,
    "writer schema": show_writer_schema,
    "store proof": _members(StoreWay.decode),
}
"""For each kind of object the function that checks and shows it.  Objects of other kinds are only read by their
writer."""
