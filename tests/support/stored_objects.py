"""One sound object or more of each kind (``object_kinds``), by the kind's name: what tests of every kind begin from.

A kind without an entry fails ``tests/core/store/test_object_kinds.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.keys.catalog import encode_catalog
from lancewal_core.keys.conflicts import Conflicts, encode_conflicts
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.keys.run import encode_part
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, SchemaKey, TableVersion
from lancewal_core.names.paths import FlushFile
from lancewal_core.region.flushes.manifest import encode_flush
from lancewal_core.region.pages.state_page import encode_page
from lancewal_core.region.state import encode_history
from lancewal_core.rows.fold import partial_schema
from lancewal_core.table.contract import encode_contract
from lancewal_core.table.watermarks import encode_merge_record
from lancewal_core.wal.bundle import encode_bundle
from lancewal_core.wal.segment import encode_segment
from tests.golden import core_formats as core
from tests.golden import json_formats as texts


@dataclass(frozen=True, slots=True)
class Sound:
    """Objects that may lie at ``key``."""

    key: str
    objects: tuple[bytes, ...]
    beside: tuple[tuple[str, bytes], ...] = ()
    """Other objects, by their keys, without which it cannot be shown."""


def stream(table: pa.Table) -> bytes:
    """A side file, as a flush is written."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _side_key(file: FlushFile) -> str:
    return paths.flush_file("0badcafe", file)


_GONE = pa.Table.from_pylist([{"id": i, "country": "k" * i} for i in range(30)], core.ROWS.key)
_PARTIAL = pa.Table.from_pylist(
    [{"id": 1, "country": "a", "weight": 2.0, "_present": b"\x0b\x00"}], partial_schema(core.ROWS)
)

_CONFLICTS = Conflicts.none(texts.CONTRACT.rows).with_owner(
    MergedFrom(core.NORTH, Position(3)),
    pa.table({"id": list(range(30)), "country": ["k" * i for i in range(30)]}, texts.CONTRACT.rows.key),
)

SOUND: dict[str, Sound] = {
    "segment": Sound(core.SEGMENT_KEY, (encode_segment(core.SEGMENT, core.ROWS.wal),)),
    "bundle": Sound(core.BUNDLE.key, (encode_bundle(core.BUNDLE.copies, core.ROWS.wal),)),
    "flush": Sound(texts.FLUSH_KEY, (encode_flush(texts.FLUSH), encode_flush(texts.REPAIRED))),
    "deleted keys": Sound(_side_key(FlushFile.DELETES), (stream(_GONE),)),
    "patches": Sound(_side_key(FlushFile.PATCHES), (stream(_PARTIAL),)),
    "part of a key run": Sound(
        paths.key_part("2233"), (encode_part(core.KEY_ENTRIES), encode_part(core.KEY_ENTRIES_WITH_REGIONS))
    ),
    "state page": Sound(core.STATES_KEY, (encode_page(core.STATES),)),
    "key catalog": Sound(
        paths.key_catalog_version(4, None), (encode_catalog(texts.CATALOG), encode_catalog(texts.CATALOG_WITH_REGIONS))
    ),
    "history page": Sound(
        core.PAGE_KEY,
        (encode_history(core.SOUTH, core.PAGE.contract_version, core.PAGE.generations),),
    ),
    "keys in conflict": Sound(
        paths.conflicts_object("0badcafe"),
        (encode_conflicts(_CONFLICTS, "0badcafe")[0], encode_conflicts(Conflicts.none(texts.CONTRACT.rows), "0badcafe")[0]),
        ((paths.contract_version(1, None), encode_contract(texts.CONTRACT)),),
    ),
    "parcel": Sound(paths.parcel_part("p1", 0), (b"tasks",)),
    "contract": Sound(paths.contract_version(1, None), (encode_contract(texts.CONTRACT),)),
    "control": Sound(paths.control_version(3, None), (texts.CONTROL.encode(),)),
    "drain": Sound(paths.drain_version(2, None), (texts.DRAIN.encode(),)),
    "merge record": Sound(
        paths.merge_record(TableVersion(11), None), (encode_merge_record(texts.IN_FORCE, "checkpoint"),)
    ),
    "finished merge": Sound(paths.merge_finished(TableVersion(9), None), (b"fedcba9876543210fedcba9876543210",)),
    "accepted loss": Sound(
        paths.loss_record(core.NORTH, Position(1010), None), (texts.LOSS.encode(), texts.LOST_SEGMENT.encode())
    ),
    "beginning of a load": Sound(paths.load_record("nightly", None), (texts.LOAD.encode(),)),
    "subscription": Sound(
        paths.subscription_version("0badcafe", 3, None), (texts.SUBSCRIPTION.encode(),)
    ),
    "list of subscriptions": Sound(paths.subscription_names(2, None), (texts.SUBSCRIPTION_NAMES.encode(),)),
    "writer schema": Sound(
        paths.writer_schema_version(SchemaKey("id-7"), 1, None),
        (texts.WRITER_SCHEMA.encode(), texts.UNKNOWN_SCHEMA.encode()),
    ),
    "store proof": Sound(texts.STORE_WAY.key, (texts.STORE_WAY.encode(),)),
    "probe": Sound(paths.probe("00aa"), (b"who",)),
}  # fmt: skip
