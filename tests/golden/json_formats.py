"""The values inside the golden files of the JSON formats; ``python -m tests.golden.json_formats`` writes missing files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from lancewal_core.catalog.directory import DirectoryCatalog
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.keys.catalog import CoveredFile, KeyCatalog, KeyPart, KeyRun, RunRegion, encode_catalog
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, Position, Sequence, TableUuid, TableVersion
from lancewal_core.names.paths import FlushFile
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.record_keys.key_form import KeyForm
from lancewal_core.region.flushes.manifest import Flush, FlushPart, Stretch, encode_flush
from lancewal_core.region.loss_record import LossRecord
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.contract import Column, Contract, DroppedField, FormerName, encode_contract
from lancewal_core.table.control import Control
from lancewal_core.table.drain import Drain
from lancewal_core.table.load_record import LoadRecord
from lancewal_core.table.proof.store_proof import StoreWay
from lancewal_core.table.subscriptions.stored import MergedMark, StoredSubscription, SubscriptionNames
from lancewal_core.table.watermarks import InForce, Watermark, Watermarks, encode_merge_record
from lancewal_core.wal.writer_schemas import WriterSchema, stored_schema
from lancewal_reader.point.receipt import Receipt
from tests.golden.core_formats import NORTH, ROWS, SOUTH
from tests.twins.memory_store import MemoryStore
from tests.twins.memory_table import MemoryDataset, MemoryTable

FOLDER = Path(__file__).parent

CONTRACT = Contract(
    table_uuid="0123456789abcdef0123456789abcdef",
    topic=NORTH.topic,
    topic_id=NORTH.topic_id,
    partitions=13,
    primary_key=("id", "country"),
    region_key=("id",),
    start=(-1,) * 12 + (42,),
    columns=(
        Column(name="id", type="int64", field_ids=(0,)),
        Column(name="country", type="string", field_ids=(1,)),
        Column(name="price", type="decimal128(10, 2)", field_ids=(2,)),
        Column(name="place", type="struct<x: float64, y: float64>", field_ids=(3, 4, 5)),
        Column(name="vector", type="fixed_size_list<float32>[2]", field_ids=(6,)),
        Column(name="changed", type="timestamp[us, UTC]", field_ids=(7,)),
    ),
)
CONTRACT_KEYED_BY_BYTES = CONTRACT.model_copy(
    update={"region_key": (), "key_format": "bytes", "start": (0,), "partitions": 1}
)
CONTRACT_KEYED_BY_JSON = CONTRACT.model_copy(update={"format": 2, "key_format": "json", "partitioner": "crc32"})
CONTRACT_KEYED_BY_AVRO = CONTRACT.model_copy(
    update={"format": 2, "key_format": "avro", "key_forms": (KeyForm("id-7"), KeyForm("header-id-8"))}
)
CONTRACT_OF_A_PLACE = CONTRACT.model_copy(update={"place": "s3://bucket/tables/orders"})
CONTRACT_OF_A_MAKING = CONTRACT_OF_A_PLACE.model_copy(update={"making": "89abcdef0123456789abcdef01234567"})
CONTRACT_OF_A_GROUP = CONTRACT_OF_A_MAKING.model_copy(update={"group_id": "orders", "former_group_id": "orders-old"})
CONTRACT_WITH_CHANGED_COLUMNS = CONTRACT_OF_A_GROUP.model_copy(
    update={
        "format": 2,
        "version": 7,
        "columns": (
            *CONTRACT.columns[:2],
            Column(name="amount", type="decimal128(12, 2)", field_ids=(11,), first_ids=(2,)),
            Column(name="place", type="struct<x: float64, z: float64>", field_ids=(3, 4, 12)),
            Column(name="note", type="string", field_ids=(9,), default='"none"'),
            Column(name="count", type="int32", field_ids=(10,)),
        ),
        "columns_change": "7-0a1b2c3d",
        "highest_field_id": 12,
        "former_names": (FormerName(id=2, name="price"), FormerName(id=2, name="cost")),
        "dropped": (
            DroppedField(name="vector"),
            DroppedField(name="y", within=3, forgotten=True),
        ),
        "on_unknown_column": "ignore",
        "columns_max": 300,
    }
)
CONTRACT_WITH_SOURCES = CONTRACT_OF_A_GROUP.model_copy(
    update={
        "format": 2,
        "columns": (
            *CONTRACT.columns[:2],
            Column(name="price", type="decimal128(10, 2)", field_ids=(2,), field="total_amount"),
            Column(name="changed", type="timestamp[us, UTC]", field_ids=(3,), json_form="epoch_ms", field="ts"),
            Column(name="trace", type="string", field_ids=(4,), metadata="kafka.header.trace.id"),
        ),
    }
)
CONTRACT_WITH_LATER_TYPES = CONTRACT_OF_A_GROUP.model_copy(
    update={
        "format": 2,
        "columns": (
            Column(name="id", type="uuid", field_ids=(0,)),
            Column(name="country", type="fixed_size_binary[2]", field_ids=(1,)),
            Column(name="opens", type="time32[s]", field_ids=(2,)),
            Column(name="at", type="time64[us]", field_ids=(3,)),
            Column(name="took", type="duration[ms]", field_ids=(4,)),
            Column(name="text", type="large_string", field_ids=(5,)),
            Column(name="parts", type="list<large_binary>", field_ids=(6, 7)),
            Column(name="names", type="map<string, list<int8>>", field_ids=(8, 9, 10, 11, 12)),
        ),
    }
)
CONTRACT_OF_EVENTS = CONTRACT_OF_A_GROUP.model_copy(
    update={
        "format": 2,
        "region_key": CONTRACT.primary_key,
        "key_format": "json-compact",
        "envelope": "debezium",
        "snapshot_rows": "skip",
        "on_truncate": "ignore",
        "unavailable_value": "hex:00",
        "on_unavailable_value": "ignore",
        "columns": (*CONTRACT.columns[:-1], CONTRACT.columns[-1].model_copy(update={"toast": "never"})),
    }
)
CONTRACT_WITH_NAME = CONTRACT_OF_A_GROUP.model_copy(update={"format": 2, "name": "shop.orders"})
CONTRACT_OF_RECORDS = CONTRACT_OF_A_GROUP.model_copy(
    update={
        "format": 2,
        "value_format": "connect-json",
        "value_record": "shop.Order",
        "on_other_record": "ignore",
        "on_unknown_column": "add",
    }
)
_FRAGMENT = json.dumps(
    {"id": 0, "files": [{"path": "abc.lance", "fields": [0, 1], "file_size_bytes": 2048}], "physical_rows": 3}
)
FLUSH_KEY = paths.flush_file("0a1b2c3d", FlushFile.MANIFEST)
_NORTH = FlushPart(
    region=NORTH,
    generation=Generation(7),
    first=Position(1000),
    next=Position(1010),
    rows=2,
    deletes=Stretch(2, 400, 12345),
    patches=None,
    keys_crc32c=3_735_928_559,
    sealed_at_ms=1_767_225_600_000,
    record_times=RecordTimes(-1, 1_767_225_599_000),
)
_SOUTH = replace(_NORTH, region=SOUTH, rows=1, deletes=Stretch(1, 300, 9), patches=Stretch(4, 500, 7))
FLUSH = Flush(FLUSH_KEY, 1, (_FRAGMENT,), (_NORTH, _SOUTH))
REPAIRED = replace(FLUSH, parts=(replace(_NORTH, rows=3, repaired=True, sealed_at_ms=None, record_times=None),))
IN_FORCE = InForce(
    TableVersion(9),
    "fedcba9876543210fedcba9876543210",
    {NORTH: Watermark(Generation(7), Position(1010)), SOUTH: Watermark(Generation(1), Position(3))},
)
IN_FORCE_WITH_CONFLICTS = replace(IN_FORCE, conflicts=ConflictsRef("0badcafe", 1234, "0f" * 32, 3))
LOSS = LossRecord(first=1010, next=1015, accepted_at_ms=1_767_225_600_000, accepted_by="host-1-0a1b2c3d")
LOST_DELETES = LossRecord(
    first=1020, next=1024, accepted_at_ms=1_767_225_600_000, accepted_by="host-1-0a1b2c3d", kind="tombstones"
)
LOST_SEGMENT = LossRecord(
    first=1010,
    next=1012,
    accepted_at_ms=1_767_225_600_000,
    accepted_by="host-1-0a1b2c3d",
    segment=paths.wal_segment(LogId("00aa11bb"), Sequence(17)),
)
STORE_WAY = StoreWay(endpoint="https://minio.example:9000", bucket="bucket", addressing="path")
LOAD = LoadRecord(began_at_ms=1_767_225_600_000, topic_id=NORTH.topic_id, merged={NORTH.name: 7, SOUTH.name: 0})
CONTROL = Control(ingest=1_700_000_600_000, flusher="resumed", write_id="00112233445566778899aabbccddeeff")
DRAIN = Drain(
    contract_version=2,
    partitions=5,
    to=(1010, 0, 3),
    new=(0, 2),
    closed=True,
    write_id="00112233445566778899aabbccddeeff",
)
RECEIPT = Receipt(
    TableUuid(CONTRACT.table_uuid), TableVersion(9), {NORTH: Position(1015), SOUTH: Position(3)}, "/tables/t"
)

RECEIPT_LEFT_OUT = replace(RECEIPT, left_out=2)

CATALOG = KeyCatalog(
    runs=(
        KeyRun(
            name="0011",
            files=(CoveredFile(name="abc.lance", rows=3), CoveredFile(name="def.lance", rows=0)),
            parts=(KeyPart(object=paths.key_part("2233"), entries=3, first=-(2**63), last=7, size=900, crc32c=12345),),
        ),
    ),
    write_id="00112233445566778899aabbccddeeff",
)

CATALOG_WITH_REGIONS = KeyCatalog(
    runs=(
        KeyRun(
            name="0011",
            files=(CoveredFile(name="abc.lance", rows=3),),
            parts=(KeyPart(object=paths.key_part("2233"), entries=3, first=1, last=7, size=900, crc32c=12345),),
            regions=(RunRegion(name=NORTH.name, position=1015), RunRegion(name=SOUTH.name, position=2**40)),
        ),
    ),
    write_id="00112233445566778899aabbccddeeff",
)


SUBSCRIPTION = StoredSubscription(
    name="warehouse",
    receipt=str(RECEIPT),
    version=9,
    versions_from=8,
    merged={NORTH.name: MergedMark(generation=7, next=1010)},
    sure=True,
    created_at_ms=1_700_000_000_000,
    committed_at_ms=1_700_000_060_000,
    write_id="00112233445566778899aabbccddeeff",
)
WRITER_SCHEMA = stored_schema(
    WriterSchema(
        "avro",
        '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "Place"}]}',
        (("Place", '{"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}'),),
    ),
    "0badcafe",
)
UNKNOWN_SCHEMA = stored_schema(None, "0badcaff")
SUBSCRIPTION_NAMES = SubscriptionNames(
    ids={"warehouse": "0badcafe", "cache": "cafe0bad"}, write_id="00112233445566778899aabbccddeeff"
)


NAMED = TableEntry(
    name="shop.orders", uri="s3://lake/shop.orders.lance", table_uuid=CONTRACT.table_uuid, topic=NORTH.topic,
    changed_ms=1_767_225_600_000, write_id="0a1b2c3d",
)  # fmt: skip
NAMED_BY_GROUP = NAMED.model_copy(
    update={"name": "gone", "uri": "s3://lake/gone", "group_id": "orders", "state": "dropped", "write_id": "4e5f6071"}
)


def catalog_of(store: MemoryStore) -> DirectoryCatalog:
    """A catalog in this store."""
    return DirectoryCatalog(store, "s3://lake", ThreadTasks(), SystemClock(), lambda: "89abcdef")


def _tables() -> bytes:
    store = MemoryStore(SystemClock())
    for entry in (NAMED, NAMED_BY_GROUP):
        catalog_of(store).swap_table(entry.name, None, entry)
    return store.get(paths.catalog_tables_version(2)) or b""


def encoded() -> dict[str, bytes]:
    """What today's writers make of the values, by file name."""
    store = MemoryStore(SystemClock())
    Watermarks(store, MemoryTable(MemoryDataset(ROWS.table)), None).record(IN_FORCE, TableVersion(11), "checkpoint")
    record = store.get(paths.merge_record(TableVersion(11), None))
    return {
        "catalog_tables_1.json": _tables(),
        "contract_1.json": encode_contract(CONTRACT),
        "contract_1_key_bytes.json": encode_contract(CONTRACT_KEYED_BY_BYTES),
        "contract_2_key_json.json": encode_contract(CONTRACT_KEYED_BY_JSON),
        "contract_2_key_avro.json": encode_contract(CONTRACT_KEYED_BY_AVRO),
        "contract_1_place.json": encode_contract(CONTRACT_OF_A_PLACE),
        "contract_1_making.json": encode_contract(CONTRACT_OF_A_MAKING),
        "contract_1_group.json": encode_contract(CONTRACT_OF_A_GROUP),
        "contract_2_envelope.json": encode_contract(CONTRACT_OF_EVENTS),
        "contract_2_name.json": encode_contract(CONTRACT_WITH_NAME),
        "contract_2_record.json": encode_contract(CONTRACT_OF_RECORDS),
        "contract_2_later_types.json": encode_contract(CONTRACT_WITH_LATER_TYPES),
        "contract_2_sources.json": encode_contract(CONTRACT_WITH_SOURCES),
        "contract_2.json": encode_contract(CONTRACT_WITH_CHANGED_COLUMNS),
        "flush_1.json": encode_flush(FLUSH),
        "flush_1_repaired.json": encode_flush(REPAIRED),
        "merge_record_1.json": record or b"",
        "merge_record_2.json": encode_merge_record(IN_FORCE_WITH_CONFLICTS, "checkpoint"),
        "loss_record_1.json": LOSS.encode(),
        "key_catalog_1_checksum.json": encode_catalog(CATALOG),
        "key_catalog_1_regions_checksum.json": encode_catalog(CATALOG_WITH_REGIONS),
        "loss_record_1_tombstones.json": LOST_DELETES.encode(),
        "loss_record_1_segment.json": LOST_SEGMENT.encode(),
        "load_record_1.json": LOAD.encode(),
        "subscription_1.json": SUBSCRIPTION.encode(),
        "subscription_names_1.json": SUBSCRIPTION_NAMES.encode(),
        "writer_schema_1.json": WRITER_SCHEMA.encode(),
        "writer_schema_1_unknown.json": UNKNOWN_SCHEMA.encode(),
        "store_proof_1.json": STORE_WAY.encode(),
        "control_1.json": CONTROL.encode(),
        "drain_1.json": DRAIN.encode(),
        "receipt_1.json": RECEIPT.to_json().encode(),
        "receipt_1_left_out.json": RECEIPT_LEFT_OUT.to_json().encode(),
    }


if __name__ == "__main__":
    for name, data in encoded().items():
        if not (FOLDER / name).exists():
            (FOLDER / name).write_bytes(data)
