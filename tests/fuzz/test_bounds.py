"""Every decoder of a stored object takes memory and steps in proportion to its bytes, whatever is repeated in them.

Steps are calls of functions, of Python and of C, counted: the same in each run, on any machine.  Twice the bytes may take
about twice of them.  Where C code itself would take longer than its bytes, as in searching a list, a limit of counts holds it
(``tests/security/test_stored_objects.py``).
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.cli.stored_object import SHOWERS
from lancewal_core.errors import ObjectCorrupt
from lancewal_core.keys.catalog import decode_catalog
from lancewal_core.keys.code import CodedKeys
from lancewal_core.keys.conflicts import Conflicts, decode_conflicts, encode_conflicts
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.keys.run import Entries, decode_part, encode_part
from lancewal_core.names import paths
from lancewal_core.names.ids import (
    Generation,
    LogId,
    Page,
    Position,
    Region,
    SchemaKey,
    Sequence,
    TableVersion,
    TopicId,
)
from lancewal_core.names.paths import FlushFile
from lancewal_core.names.proto import mem_wal_pb2, wal_segment_pb2
from lancewal_core.region.flush_files import side_rows
from lancewal_core.region.flushes.manifest import decode_flush
from lancewal_core.region.loss_record import LossRecord
from lancewal_core.region.pages.state_page import PageRecord, StatePage, decode_page, encode_page
from lancewal_core.region.state import decode_history, decode_state
from lancewal_core.table.contract import decode_contract
from lancewal_core.table.control import Control
from lancewal_core.table.drain import Drain
from lancewal_core.table.load_record import LoadRecord
from lancewal_core.table.proof.store_proof import StoreWay
from lancewal_core.table.subscriptions.stored import StoredSubscription, SubscriptionNames
from lancewal_core.table.watermarks import decode_merge_finished, decode_merge_record
from lancewal_core.wal.bundle import decode_bundle
from lancewal_core.wal.segment import decode_segment
from lancewal_core.wal.writer_schemas import StoredSchema
from tests.fuzz.test_segments import seal
from tests.golden import core_formats as core
from tests.golden import json_formats as texts
from tests.support.fuzzing import memory_bound, outcome

REGION = Region("orders", TopicId("AAAAAAAAQACAAAAAAAAAAQ"), 3)
COUNT = 2000
MEMORY_A_BYTE = 250
"""Of the object; and so much for anything:"""
MEMORY = 16 << 20
STEPS_A_BYTE = 4.0
MIB = 1 << 20

_Details = mem_wal_pb2.MemWalIndexDetails
Decode = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Kind:
    key: str
    decode: Decode
    made: Callable[[Any], bytes]
    """The object with this JSON content."""


def plain(content: Any) -> bytes:
    return json.dumps(content).encode()


def flush(content: Any) -> bytes:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return plain({"flush": content, "crc32c": google_crc32c.value(canonical)})


FLUSH_KEY = paths.flush_file("0badcafe", FlushFile.MANIFEST)
SIDE_KEY = paths.flush_file("0badcafe", FlushFile.DELETES)
LOSS_KEY = paths.loss_record(REGION, Position(5), None)
DRAIN_KEY = paths.drain_version(1, None)
CATALOG_KEY = paths.key_catalog_version(1, None)
MERGE_KEY = paths.merge_record(TableVersion(7), None)
HELD_KEY = paths.subscription_version("0badcafe", 1, None)
NAMES_KEY = paths.subscription_names(1, None)
SCHEMA_KEY = paths.writer_schema_version(SchemaKey("id-7"), 2, None)
WAY_KEY = paths.store_proof("0f" * 32)
KINDS: dict[str, Kind] = {
    name: Kind(key, decode, made)
    for name, key, decode, made in (
        ("contract", paths.contract_version(1, None), lambda d: decode_contract(d, paths.contract_version(1, None)), plain),
        ("control", paths.control_version(1, None), lambda d: Control.decode(d, paths.control_version(1, None)), plain),
        ("catalog", CATALOG_KEY, lambda d: decode_catalog(d, CATALOG_KEY), plain),
        ("load", paths.load_record("n", None), lambda d: LoadRecord.decode(d, paths.load_record("n", None)), plain),
        ("loss", LOSS_KEY, lambda d: LossRecord.decode(d, LOSS_KEY), plain),
        ("drain", DRAIN_KEY, lambda d: Drain.decode(d, DRAIN_KEY), plain),
        ("merge", MERGE_KEY, lambda d: decode_merge_record(d, MERGE_KEY), plain),
        ("subscription", HELD_KEY, lambda d: StoredSubscription.decode(d, HELD_KEY), plain),
        ("subscriptions", NAMES_KEY, lambda d: SubscriptionNames.decode(d, NAMES_KEY), plain),
        ("schema", SCHEMA_KEY, lambda d: StoredSchema.decode(d, SCHEMA_KEY), plain),
        ("way", WAY_KEY, lambda d: StoreWay.decode(d, WAY_KEY), plain),
        ("flush", FLUSH_KEY, lambda d: decode_flush(d, FLUSH_KEY), flush),
    )
}  # fmt: skip
MEMBERS: dict[str, tuple[str, ...]] = {
    "contract": ("columns", "primary_key", "start", "altered_at"),
    "control": ("ingest",),
    "catalog": ("runs",),
    "load": ("merged",),
    "loss": ("segment",),
    "merge": ("watermarks", "merge", "kind"),
    "drain": ("to", "new"),
    "subscription": ("merged", "receipt", "name"),
    "subscriptions": ("ids",),
    "schema": ("text", "references", "since"),
    "way": ("endpoint",),
    "flush": ("fragments", "parts"),
}
PART = {
    "region": REGION.name, "generation": 4, "first": 10, "next": 25, "rows": 0, "deletes": None, "patches": None,
    "keys_crc32c": 0, "sealed_at_ms": None, "record_time_min_ms": None, "record_time_max_ms": None,
}  # fmt: skip
COLUMN = {"name": "k", "type": "int64", "field_ids": [0]}
FILE = {"path": "a.lance", "fields": [0], "column_indices": [0], "file_size_bytes": 1}


def wide(count: int) -> str:
    return f"struct<{', '.join(f'a{i}: int8' for i in range(count))}>"


REPEATED: dict[str, Callable[[int], Any]] = {
    "numbers": lambda n: list(range(n)),
    "texts": lambda n: "x" * 8 * n,
    "lists": lambda n: [[]] * n,
    "objects": lambda n: [{}] * n,
    "members": lambda n: {f"m{i}": i for i in range(n)},
    "columns": lambda n: [COLUMN] * n,
    "wide column": lambda n: [{**COLUMN, "field_ids": [0] * n, "type": wide(n // 2)}],
    "fragments": lambda n: [{"id": 0, "physical_rows": 1, "files": [FILE]}] * (n // 8),
    "parts": lambda n: [{**PART, "generation": i} for i in range(1, n // 16 + 2)],
    "runs": lambda n: [{"name": "r", "files": [{"name": "f", "rows": 1}] * n, "parts": []}],
    "regions": lambda n: {Region("t", TopicId("i"), i).name: {"generation": 1, "next": 1} for i in range(n)},
}  # fmt: skip
SOUND: dict[str, dict[str, Any]] = {
    "contract": {
        "table_uuid": "u", "topic": "t", "topic_id": "i", "partitions": 1, "primary_key": ["k"], "region_key": ["k"],
        "start": [0], "columns": [COLUMN],
    },
    "control": {"format": 1, "write_id": "w"},
    "catalog": {"format": 1, "runs": [], "write_id": "w"},
    "load": {"began_at_ms": 1, "topic_id": "t", "merged": {}},
    "loss": {"first": 5, "next": 6, "accepted_at_ms": 1, "accepted_by": "o"},
    "merge": {"format": "1", "set_by": 6, "merge": "m", "kind": "checkpoint", "watermarks": {}},
    "drain": {"contract_version": 1, "partitions": 2, "to": [0], "write_id": "w"},
    "subscription": {
        "format": 1, "name": "n", "receipt": "lw1.", "version": 1, "versions_from": 1, "merged": {}, "sure": True,
        "created_at_ms": 1, "committed_at_ms": 1, "write_id": "w",
    },
    "subscriptions": {"format": 1, "ids": {}, "write_id": "w"},
    "schema": {"format": 1, "kind": "avro", "text": "\"long\"", "references": [], "since": {}, "write_id": "w"},
    "way": {"format": 1, "endpoint": "https://s3", "bucket": "b", "addressing": "path"},
    "flush": {"format": 1, "name": "0badcafe", "contract_version": 1, "fragments": [], "parts": [PART]},
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_what_is_repeated_in_is_sound(name: str) -> None:
    """Else all that follows would be refused before it is looked at."""
    KINDS[name].decode(KINDS[name].made(SOUND[name]))


def steps_of(decode: Decode, data: bytes, where: str) -> int:
    """Functions that were called; what may come out is a value, or an error that names the object."""
    steps = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal steps
        steps += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        outcome(lambda: decode(data), where)
    finally:
        sys.setprofile(before)
    return steps


def judge(decode: Decode, made: Callable[[int], bytes], where: str) -> None:
    once, twice = made(COUNT), made(2 * COUNT)
    first, second = steps_of(decode, once, where), steps_of(decode, twice, where)
    assert second <= 2.2 * first + 5000, f"{len(once)} bytes took {first} steps, {len(twice)} bytes {second}"
    assert second <= STEPS_A_BYTE * len(twice) + 5000, f"{len(twice)} bytes took {second} steps"
    with memory_bound(MEMORY + MEMORY_A_BYTE * len(twice)):
        outcome(lambda: decode(twice), where)


@pytest.mark.parametrize("repeated", REPEATED)
@pytest.mark.parametrize("name", KINDS)
def test_json_objects(name: str, repeated: str) -> None:
    kind = KINDS[name]
    for member in (*MEMBERS[name], "unknown"):
        judge(kind.decode, lambda n, m=member: kind.made({**SOUND[name], m: REPEATED[repeated](n)}), kind.key)  # type: ignore[misc] # mypy does not take a default for a closure


def protobuf(message: _Details) -> bytes:
    body = message.SerializeToString(deterministic=True)
    return body + b"\xfd\x07" + struct.pack("<I", google_crc32c.value(body))


def index_of(count: int, content: Any, generation: bool) -> bytes:
    message = _Details(
        format_version=1, content=content, topic=REGION.topic, topic_id=REGION.topic_id, partition=REGION.partition,
        contract_version=1, write_id="w",
    )  # fmt: skip
    for i in range(1, count + 1):
        wal = message.mem_wal_list.add()
        if generation:
            wal.id.region, wal.id.generation = REGION.name, i
            wal.wal_location = paths.log_prefix(LogId("log"))
            wal.owner_id, wal.state = "o", _Details.MemWal.SEALED
            wal.first_position, wal.next_position, wal.first_sequence, wal.end_sequence = i, i + 1, 0, 0
    return protobuf(message)


@pytest.mark.parametrize("generation", [True, False], ids=["generations", "nothing"])
@pytest.mark.parametrize("kind", ["index", "history"])
def test_indexes(kind: str, generation: bool) -> None:
    index = kind == "index"
    key = (
        paths.page_version(Page.of(REGION, 128, None), 1) if index else paths.history_page(REGION, Generation(1), None)
    )
    content = _Details.INDEX if index else _Details.HISTORY
    decode: Any = decode_state if index else decode_history
    judge(lambda data: decode(data, key), lambda n: index_of(n // 8, content, generation), key)


def page_of(count: int) -> bytes:
    """Slots and records, of which none is looked into."""
    records = {partition: PageRecord(b"r", 1) for partition in range(count)}
    return encode_page(StatePage(Page("orders", TopicId("id"), 0, None), 1 << 20, "w", records))


def test_state_pages() -> None:
    key = paths.page_version(Page("orders", TopicId("id"), 0, None), 1)
    judge(lambda data: decode_page(data, key), lambda n: page_of(n // 8), key)


@pytest.mark.parametrize("repeated", ["entries", "rejected"])
def test_segments(repeated: str) -> None:
    key = paths.wal_segment(LogId("log"), Sequence(4))

    def made(count: int) -> bytes:
        table = wal_segment_pb2.WalSegmentTable(log="log", sequence=4, writer="w", written_at_ms=1)
        table.body.schema.start, table.body.schema.length = 0, 1
        for i in range(count // 8 if repeated == "entries" else 1):
            entry = table.body.entries.add(region=f"t/i/{i}", first_position=0, next_position=2**62, contract_version=1)
            batch = table.body.batches.add(entries=1)
            batch.section.start, batch.section.length = i + 1, 1
            for offset in range(count if repeated == "rejected" else 0):
                entry.rejected.add(offset=offset, kind="type")
        return seal(bytes(len(table.body.entries) + 1) + b"\xff\xff\xff\xff\x00\x00\x00\x00", table)

    judge(lambda data: decode_segment(data, key), made, key)


def test_bundles() -> None:
    key = paths.wal_bundle(LogId("log"), Sequence(4), Sequence(4))

    def made(count: int) -> bytes:
        table = wal_segment_pb2.WalSegmentTable(log="log", sequence=4, writer="w")
        body = table.bundle.body
        body.schema.start, body.schema.length = 0, 1
        table.bundle.segments.add(size=1, etag="e", written_at_ms=1)
        for i in range(count // 8):
            body.entries.add(region=f"t/i/{i}", first_position=0, next_position=2**62, contract_version=1)
            batch = body.batches.add(entries=1)
            batch.section.start, batch.section.length = i + 1, 1
            table.bundle.places.append(0)
        return seal(bytes(len(body.entries) + 1) + b"\xff\xff\xff\xff\x00\x00\x00\x00", table)

    judge(lambda data: decode_bundle(data, key), made, key)


def stream(columns: int, batches: int, rows: int, codec: str | None) -> bytes:
    batch = pa.record_batch({f"c{i}": pa.array(np.zeros(rows, np.int64)) for i in range(columns)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def side(data: bytes) -> object:
    try:
        return side_rows(data)
    except (ObjectCorrupt, pa.ArrowException, ValueError, OSError) as error:
        raise ObjectCorrupt(f"{SIDE_KEY}: {error}") from error


@pytest.mark.parametrize("repeated", ["columns", "batches", "rows", "packed rows"])
def test_side_files(repeated: str) -> None:
    def made(count: int) -> bytes:
        match repeated:
            case "columns":
                return stream(count // 16, 1, 1, "lz4")
            case "batches":
                return stream(1, count // 16, 1, "lz4")
            case "rows":
                return stream(1, 1, count, None)
            case _:
                return stream(1, 1, 10 * count, "lz4")

    judge(side, made, SIDE_KEY)


def test_parts_of_key_runs() -> None:
    key = paths.key_part("p")

    def made(count: int) -> bytes:
        numbers = np.zeros(count, np.int64)
        return encode_part(Entries(CodedKeys(numbers, None), numbers.astype(np.uint32), numbers.astype(np.uint32)))

    judge(lambda data: decode_part(pa.py_buffer(data), key), made, key)


@pytest.mark.parametrize("count", [COUNT, 100 * COUNT])
def test_the_mark_of_a_finished_merge(count: int) -> None:
    key = paths.merge_finished(TableVersion(7), None)
    judge(lambda data: decode_merge_finished(data, key), lambda n: b"x" * (n * count // COUNT), key)


def test_keys_in_conflict() -> None:
    key = paths.conflicts_object("0badcafe")

    def made(count: int) -> bytes:
        keys = pa.table({"id": list(range(count // 16)), "country": ["k"] * (count // 16)}, texts.CONTRACT.rows.key)
        return encode_conflicts(
            Conflicts.none(texts.CONTRACT.rows).with_owner(MergedFrom(core.NORTH, Position(3)), keys), "0badcafe"
        )[0]

    judge(lambda data: decode_conflicts(data, key, texts.CONTRACT.rows), made, key)


TESTED = {
    "contract": "contract", "control": "control", "key catalog": "catalog", "beginning of a load": "load",
    "accepted loss": "loss", "merge record": "merge", "flush": "flush", "drain": "drain",
    "store proof": "way", "writer schema": "schema", "subscription": "subscription", "list of subscriptions": "subscriptions",
    "state page": test_state_pages, "history page": test_indexes, "segment": test_segments, "bundle": test_bundles,
    "deleted keys": test_side_files,
    "patches": test_side_files, "part of a key run": test_parts_of_key_runs,
    "keys in conflict": test_keys_in_conflict,
    "finished merge": test_the_mark_of_a_finished_merge,
}  # fmt: skip
"""By kind: what of ``KINDS``, or the test."""


def test_every_kind_that_is_decoded_is_here() -> None:
    assert TESTED.keys() == SHOWERS.keys()
    assert {name for name in TESTED.values() if isinstance(name, str)} == KINDS.keys()
