"""Every stored JSON format stays readable, and what is written today is what was written then."""

from __future__ import annotations

from hashlib import sha256

import pyarrow as pa
import pytest

from lancewal_core.keys.catalog import decode_catalog
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, TableVersion
from lancewal_core.process.clock import SystemClock
from lancewal_core.region.flushes.manifest import Flush, read_flush
from lancewal_core.region.loss_record import read_losses
from lancewal_core.table.contract import decode_contract
from lancewal_core.table.control import Control
from lancewal_core.table.drain import Drain
from lancewal_core.table.load_record import LoadRecord
from lancewal_core.table.proof.store_proof import StoreWay
from lancewal_core.table.subscriptions.stored import StoredSubscription, SubscriptionNames
from lancewal_core.table.watermarks import InForce, Watermarks
from lancewal_core.wal.writer_schemas import StoredSchema
from lancewal_ingest.decode.naming import Naming, naming_of
from lancewal_reader.point.receipt import Receipt
from tests.golden import json_formats as golden
from tests.golden.core_formats import NORTH, ROWS, SOUTH
from tests.twins.memory_store import MemoryStore
from tests.twins.memory_table import MemoryDataset, MemoryTable


def stored(name: str) -> bytes:
    return (golden.FOLDER / name).read_bytes()


def test_the_tables_of_a_catalog_are_read() -> None:
    store = MemoryStore(SystemClock())
    store.put_if_absent(paths.catalog_tables_version(1), stored("catalog_tables_1.json"))
    expected = {entry.name: entry for entry in (golden.NAMED_BY_GROUP, golden.NAMED)}
    assert golden.catalog_of(store).tables() == expected


def test_the_contract_is_read() -> None:
    read = decode_contract(stored("contract_1.json"), "here")
    assert read == golden.CONTRACT
    assert [str(f.type) for f in read.rows.columns][3:5] == [
        "struct<x: double, y: double>",
        "fixed_size_list<item: float>[2]",
    ]


def test_the_contract_of_a_place_is_read() -> None:
    assert decode_contract(stored("contract_1_place.json"), "here") == golden.CONTRACT_OF_A_PLACE
    assert decode_contract(stored("contract_1_making.json"), "here") == golden.CONTRACT_OF_A_MAKING
    assert decode_contract(stored("contract_1_group.json"), "here") == golden.CONTRACT_OF_A_GROUP


def test_the_contract_with_changed_columns_is_read() -> None:
    read = decode_contract(stored("contract_2.json"), "here")
    assert read == golden.CONTRACT_WITH_CHANGED_COLUMNS
    names = naming_of(read).names
    assert names is not None
    assert (names.former, names.ignores) == ({"price": "amount", "cost": "amount"}, True)
    assert names.dropped == frozenset({"vector"})
    assert naming_of(read).defaults == {"note": '"none"'}


def test_the_contract_with_sources_of_columns_is_read() -> None:
    assert decode_contract(stored("contract_2_envelope.json"), "here") == golden.CONTRACT_OF_EVENTS
    read = decode_contract(stored("contract_2_sources.json"), "here")
    assert read == golden.CONTRACT_WITH_SOURCES
    assert naming_of(read) == Naming(
        None, {}, {"price": "total_amount", "changed": "ts"}, {"ts": "epoch_ms"}, frozenset({"trace"})
    )


def test_the_contract_with_later_types_is_read() -> None:
    read = decode_contract(stored("contract_2_later_types.json"), "here")
    assert read == golden.CONTRACT_WITH_LATER_TYPES
    assert read.rows.columns.types == [
        pa.uuid(), pa.binary(2), pa.time32("s"), pa.time64("us"), pa.duration("ms"), pa.large_string(),
        pa.list_(pa.large_binary()), pa.map_(pa.string(), pa.list_(pa.int8())),
    ]  # fmt: skip


def test_the_contract_with_a_name_is_read() -> None:
    assert decode_contract(stored("contract_2_name.json"), "here") == golden.CONTRACT_WITH_NAME


def test_the_contract_of_one_type_of_records_is_read() -> None:
    assert decode_contract(stored("contract_2_record.json"), "here") == golden.CONTRACT_OF_RECORDS


@pytest.mark.parametrize(
    ("name", "expected"), [("flush_1.json", golden.FLUSH), ("flush_1_repaired.json", golden.REPAIRED)]
)
def test_the_flush_is_read(name: str, expected: Flush) -> None:
    store = MemoryStore(SystemClock())
    store.put_if_absent(golden.FLUSH_KEY, stored(name))
    assert read_flush(store, golden.FLUSH_KEY) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("merge_record_1.json", golden.IN_FORCE), ("merge_record_2.json", golden.IN_FORCE_WITH_CONFLICTS)],
)
def test_the_merge_record_is_read(name: str, expected: InForce) -> None:
    store = MemoryStore(SystemClock())
    store.put_if_absent(paths.merge_record(TableVersion(11), None), stored(name))
    assert Watermarks(store, MemoryTable(MemoryDataset(ROWS.table)), None).at(11) == expected


def test_the_loss_records_are_read() -> None:
    store = MemoryStore(SystemClock())
    store.put_if_absent(paths.loss_record(NORTH, Position(golden.LOSS.first), None), stored("loss_record_1.json"))
    deletes = paths.loss_record(NORTH, Position(golden.LOST_DELETES.first), None)
    store.put_if_absent(deletes, stored("loss_record_1_tombstones.json"))
    segment = paths.loss_record(NORTH, Position(golden.LOST_SEGMENT.first), None, 2)
    store.put_if_absent(segment, stored("loss_record_1_segment.json"))
    assert read_losses(store, NORTH, None) == (golden.LOSS, golden.LOST_SEGMENT, golden.LOST_DELETES)


def test_the_beginning_of_a_load_is_read() -> None:
    assert LoadRecord.decode(stored("load_record_1.json"), "here") == golden.LOAD


def test_the_proof_of_a_store_is_read() -> None:
    assert StoreWay.decode(stored("store_proof_1.json"), "here") == golden.STORE_WAY
    assert golden.STORE_WAY.key == f"_lancewal/store/{sha256(stored('store_proof_1.json')).hexdigest()}.json"


def test_the_control_is_read() -> None:
    assert Control.decode(stored("control_1.json"), "here") == golden.CONTROL


def test_a_subscription_is_read() -> None:
    assert StoredSubscription.decode(stored("subscription_1.json"), "here") == golden.SUBSCRIPTION


def test_a_list_of_subscriptions_is_read() -> None:
    assert SubscriptionNames.decode(stored("subscription_names_1.json"), "here") == golden.SUBSCRIPTION_NAMES
    assert StoredSchema.decode(stored("writer_schema_1.json"), "here") == golden.WRITER_SCHEMA
    assert StoredSchema.decode(stored("writer_schema_1_unknown.json"), "here") == golden.UNKNOWN_SCHEMA


def test_the_drain_is_read() -> None:
    assert Drain.decode(stored("drain_1.json"), "here") == golden.DRAIN


def test_the_contract_of_a_table_keyed_by_bytes_is_read() -> None:
    read = decode_contract(stored("contract_1_key_bytes.json"), "here")
    assert read == golden.CONTRACT_KEYED_BY_BYTES
    assert not read.rows_tell_partition
    assert golden.CONTRACT.rows_tell_partition


def test_the_contract_of_a_table_keyed_by_json_is_read() -> None:
    read = decode_contract(stored("contract_2_key_json.json"), "here")
    assert read == golden.CONTRACT_KEYED_BY_JSON
    assert (read.key_codec, read.rows_tell_partition) == (None, False)
    assert (read.rows.region_key, read.partitioner) == (("id",), "crc32")


def test_the_contract_of_a_table_keyed_by_avro_is_read() -> None:
    read = decode_contract(stored("contract_2_key_avro.json"), "here")
    assert read == golden.CONTRACT_KEYED_BY_AVRO
    assert (read.key_codec, read.rows_tell_partition, read.key_forms) == (None, False, ("id-7", "header-id-8"))


@pytest.mark.parametrize("name", ["key_catalog_1.json", "key_catalog_1_checksum.json"])
def test_the_key_catalog_is_read(name: str) -> None:
    assert decode_catalog(stored(name), "here") == golden.CATALOG


@pytest.mark.parametrize("name", ["key_catalog_1_regions.json", "key_catalog_1_regions_checksum.json"])
def test_the_key_catalog_with_regions_is_read(name: str) -> None:
    read = decode_catalog(stored(name), "here")
    assert read == golden.CATALOG_WITH_REGIONS
    assert read.runs[0].merged_from == (MergedFrom(NORTH, Position(1015)), MergedFrom(SOUTH, Position(2**40)))


def test_the_receipt_is_read() -> None:
    assert Receipt.from_json(stored("receipt_1.json").decode()) == golden.RECEIPT
    assert Receipt.from_json(stored("receipt_1_left_out.json").decode()) == golden.RECEIPT_LEFT_OUT


@pytest.mark.parametrize("name", sorted(golden.encoded()))
def test_what_is_written_today_has_the_same_bytes(name: str) -> None:
    assert golden.encoded()[name] == stored(name)
