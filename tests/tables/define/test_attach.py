"""``lancewal table attach`` against a real broker: rows stay, keys are checked, refusals change nothing."""

from __future__ import annotations

import datetime
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancewal_core.errors import (
    ContractMismatch,
    DuplicateKeys,
    InvalidSchema,
    LancewalError,
    TableExists,
    TableMissing,
    TopicMissing,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.clock import SystemClock
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.store.obstore import open_store
from lancewal_core.table.columns.changes import Added
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.contract import read_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import columns_mark
from lancewal_core.table.watermarks import NOTHING_MERGED, Watermarks
from lancewal_reader.table import open_table
from lancewal_tables.define.attach import attach_table, existing_rows
from lancewal_tables.define.unique_keys import check_unique_keys
from tests.flusher.table_settings import content, make_topic, table_settings

if TYPE_CHECKING:
    from lancewal_demo.stack import KafkaBroker

SCHEMA = pa.schema(
    [
        ("region", pa.string()),
        ("id", pa.int64()),
        ("place", pa.struct([("lat", pa.float64())])),
        ("name", pa.string()),
        ("bits", pa.list_(pa.uint8(), 2)),
    ]
)


def rows(*keys: tuple[str | None, int | None]) -> pa.Table:
    content_ = [
        {"region": region, "id": id_, "place": {"lat": 1.5}, "name": f"{region}{id_}", "bits": [id_ or 0, 255]}
        for region, id_ in keys
    ]
    return pa.Table.from_pylist(content_, SCHEMA)


THREE = rows(("a", 1), ("a", 2), ("b", 1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def settings_(kafka: KafkaBroker, topic_name: str, folder: Path) -> Settings:
    make_topic(kafka.bootstrap_servers, topic_name)
    return table_settings(folder, kafka.bootstrap_servers, topic_name, columns={})


@pytest.mark.kafka
def test_the_rows_stay_and_the_table_becomes_one(settings_: Settings, folder: Path) -> None:
    lance.write_dataset(THREE.slice(0, 2), str(folder))
    dataset = lance.write_dataset(THREE.slice(2), str(folder), mode="append")
    dataset.add_columns({"extra": "id * 2"})
    dataset.drop_columns(["name"])  # field ids are no longer 0, 1, 2, ...
    before = lance.dataset(str(folder)).to_table()
    stored, warned = content(folder), list[str]()
    looked = attach_table(settings_, warn=warned.append, look_only=True)
    assert content(folder) == stored
    assert any("['region', 'id'] of the Lance table would be declared not nullable" in text for text in warned)
    contract = attach_table(settings_)
    assert looked.model_copy(update={"table_uuid": contract.table_uuid, "making": contract.making}) == contract
    after = lance.dataset(str(folder))
    store = open_store(str(folder))
    assert after.to_table().to_pylist() == before.to_pylist()
    assert before.num_rows == 3
    assert after.schema.equals(contract.rows.table)
    assert not after.schema.field("region").nullable
    assert not after.schema.field("id").nullable
    assert read_contract(store, str(folder)) == contract
    assert after.config()["lancewal.table_uuid"] == contract.table_uuid
    ids = {field.name(): field.id() for field in after.lance_schema.fields()}
    assert {column.name: column.field_ids[0] for column in contract.columns} == ids
    assert [len(column.field_ids) for column in contract.columns] == [1, 1, 2, 1, 1]


@pytest.mark.kafka
def test_what_the_table_was_before_is_never_read_again(settings_: Settings, folder: Path) -> None:
    """An overwrite and a restore lie below; without the checkpoint the walk for watermarks would stop at them."""
    lance.write_dataset(rows(("x", 9)), str(folder))
    lance.write_dataset(THREE, str(folder), mode="overwrite")
    lance.dataset(str(folder), version=1).restore()  # type: ignore[no-untyped-call] # no annotations there
    making = attach_table(settings_).making
    newest = lance.dataset(str(folder)).version
    store, table = open_store(str(folder)), LanceTable(str(folder))
    assert Watermarks(store, table, making).at(newest) == NOTHING_MERGED
    checkpoints = [paths.merge_record(TableVersion(version), making) for version in (newest, newest - 1)]
    assert {info.key for info in store.list(paths.merges_prefix(making))} == set(checkpoints)
    store.delete(checkpoints)
    with pytest.raises(LancewalError, match="restore"):
        Watermarks(store, table, making).at(newest)


@pytest.mark.kafka
def test_new_rows_can_be_merged_under_the_attached_schema(settings_: Settings, folder: Path) -> None:
    lance.write_dataset(THREE, str(folder))
    contract = attach_table(settings_)
    table = LanceTable(str(folder))
    (fragment,) = table.write_rows(rows(("c", 1)).cast(contract.rows.table))
    assert [b.to_pylist() for b in table.read_unadopted([fragment], ["id"])] == [[{"id": 1}]]


@pytest.mark.kafka
def test_a_table_that_was_lancewals_before_is_attached_again(settings_: Settings, folder: Path) -> None:
    """Its last version names the change of columns of a contract that is gone."""
    lance.write_dataset(THREE, str(folder))
    attach_table(settings_)
    store, table = open_store(str(folder)), LanceTable(str(folder))
    change_columns(store, table, SystemClock(), lambda: uuid4().hex, [Added(("note",), pa.string())])
    assert columns_mark(table.newest()) is not None
    shutil.rmtree(folder / "_lancewal")
    stored = content(folder)
    attach_table(settings_, look_only=True)
    assert content(folder) == stored
    contract = attach_table(settings_)
    assert columns_mark(table.newest()) is None
    assert [column.name for column in contract.columns] == [*SCHEMA.names, "note"]
    assert open_table(str(folder)).to_arrow().to_pylist() == [{**row, "note": None} for row in THREE.to_pylist()]


# -- refusals --------------------------------------------------------------------------------------------------


def refused(settings_: Settings, folder: Path, error: type[LancewalError], *texts: str) -> None:
    before = content(folder)
    with pytest.raises(error) as caught:
        attach_table(settings_)
    for text in texts:
        assert text in str(caught.value)
    assert content(folder) == before


DAY = datetime.date(2026, 1, 2)


def attach_settings(settings_: Settings, **table: Any) -> Settings:
    return settings_.model_copy(update={"table": settings_.table.model_copy(update=table)})


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("there", "error", "texts"),
    [
        (rows(("a", 1), ("a", 1), ("b", 2)), DuplicateKeys, ["1 primary key ", "(region='a', id=1) 2 times"]),
        (rows(("a", 1), ("a", None)), InvalidSchema, ["'id' is null in 1 row:"]),
        (THREE.append_column("far", pa.array([DAY] * 3, pa.date64())), InvalidSchema, ["'far'", "date64"]),
        (THREE.append_column("_Score", pa.array([1] * 3)), InvalidSchema, ["'_Score'", "reserved"]),
        (THREE.drop_columns(["id"]), InvalidSchema, ["'id'", "not among"]),
        (
            THREE.append_column("s", pa.array([{"x": 1}] * 3, pa.struct([pa.field("x", pa.int8(), nullable=False)]))),
            InvalidSchema,
            ["'s'", "not null"],
        ),
        (
            THREE.append_column(pa.field("must", pa.int64(), nullable=False), pa.array([1] * 3)),
            InvalidSchema,
            ["'must' is not nullable", "alter_columns"],
        ),
    ],
    ids=["duplicates", "null", "type", "name", "key", "nested", "must"],
)
def test_tables_that_cannot_be_attached(
    settings_: Settings, folder: Path, there: pa.Table, error: type[LancewalError], texts: list[str]
) -> None:
    lance.write_dataset(there, str(folder))
    refused(settings_, folder, error, *texts)


@pytest.mark.kafka
@pytest.mark.parametrize(("version", "text"), [("legacy", "0.1"), ("2.0", "'place'")])
def test_old_files_that_lose_nulls(
    settings_: Settings, folder: Path, version: Literal["legacy", "2.0"], text: str
) -> None:
    lance.write_dataset(THREE, str(folder), data_storage_version=version)
    refused(settings_, folder, InvalidSchema, text)


@pytest.mark.kafka
def test_settings_that_contradict_the_table(settings_: Settings, folder: Path) -> None:
    lance.write_dataset(THREE, str(folder))
    declared = attach_settings(settings_, columns={"region": "string", "id": "int32"})
    refused(declared, folder, ContractMismatch, "int32", "int64")


@pytest.mark.kafka
def test_no_table_no_topic_and_a_table_that_is_one(settings_: Settings, folder: Path) -> None:
    refused(settings_, folder, TableMissing, str(folder))
    lance.write_dataset(THREE, str(folder))
    elsewhere = settings_.model_copy(update={"table": settings_.table.model_copy(update={"topic": "nowhere"})})
    refused(elsewhere, folder, TopicMissing, "nowhere")
    attach_table(settings_)
    refused(settings_, folder, TableExists, "already a lancewal table")


# -- crashes and others' writes --------------------------------------------------------------------------------


@pytest.mark.kafka
def test_rows_written_by_others_after_the_check_are_checked_too(
    settings_: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(THREE, str(folder))

    alter = lance.LanceDataset.alter_columns

    def alter_and_append(dataset: lance.LanceDataset, *changes: Any) -> None:
        alter(dataset, *changes)
        lance.write_dataset(rows(("b", 1)).cast(lance.dataset(str(folder)).schema), str(folder), mode="append")

    monkeypatch.setattr(lance.LanceDataset, "alter_columns", alter_and_append)
    with pytest.raises(DuplicateKeys, match="region='b', id=1"):
        attach_table(settings_)
    assert not (folder / "_lancewal").exists()


# -- the check itself ------------------------------------------------------------------------------------------

KEYS = st.lists(st.tuples(st.sampled_from(["", "a", "b", "a\x00"]), st.integers(0, 3)), min_size=1, max_size=40)


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unique")


@settings(max_examples=40)
@given(keys=KEYS, keys_at_once=st.integers(1, 50), deleted=st.integers(0, 3))
def test_exactly_the_duplicates_are_found_in_any_number_of_passes(
    module_folder: Path, keys: list[tuple[str, int]], keys_at_once: int, deleted: int
) -> None:
    uri = str(module_folder / "table")
    dataset = lance.write_dataset(rows(*keys), uri, mode="overwrite", max_rows_per_file=7)
    dataset.delete(f"id = {deleted}")
    expected = {k: n for k, n in Counter(k for k in keys if k[1] != deleted).items() if n > 1}
    schema = RowSchema(SCHEMA, ("region", "id"), ("region",))
    pinned = LanceTable(uri).newest()
    if not expected:
        check_unique_keys(pinned, schema, keys_at_once)
        return
    with pytest.raises(DuplicateKeys) as caught:
        check_unique_keys(pinned, schema, keys_at_once)
    message = str(caught.value)
    assert caught.value.where["duplicates"] == len(expected)
    shown = [f"(region={region!r}, id={id_!r}) {count} times" for (region, id_), count in expected.items()]
    assert sum(text in message for text in shown) == min(10, len(expected))
    assert ("more" in message.split("more than once")[1]) == (len(expected) > 10)


@pytest.mark.parametrize("type_", [pa.binary(), pa.bool_(), pa.date32(), pa.timestamp("ns"), pa.uint64()])
def test_every_key_type(tmp_path: Path, type_: pa.DataType) -> None:
    values = pa.array([b"\xff", b"x", b"\xff"]) if type_ == pa.binary() else pa.array([1, 0, 1]).cast(pa.int32())
    values = values.cast(pa.int64()).cast(type_) if type_ not in (pa.binary(), pa.date32()) else values.cast(type_)
    schema = RowSchema(pa.schema([("k", type_)]), ("k",), ("k",))
    lance.write_dataset(pa.table({"k": values}), str(tmp_path / "t"))
    for keys_at_once in (1, 100):
        with pytest.raises(DuplicateKeys, match="2 times"):
            check_unique_keys(LanceTable(str(tmp_path / "t")).newest(), schema, keys_at_once)


@pytest.mark.parametrize(("days", "shown"), [(3_663_730, "12000-12-14"), (-721_000, "-0005-12-21")])
def test_a_day_outside_pythons_years_is_named(tmp_path: Path, days: int, shown: str) -> None:
    schema = RowSchema(pa.schema([("k", pa.date32())]), ("k",), ("k",))
    days_ = pa.array([days, days], pa.int32()).cast(pa.date32())
    lance.write_dataset(pa.table({"k": days_}), str(tmp_path / "t"))
    with pytest.raises(DuplicateKeys, match=f"\\(k='{shown}'\\) 2 times"):
        check_unique_keys(LanceTable(str(tmp_path / "t")).newest(), schema, 100)


def test_nulls_are_found_in_any_number_of_passes(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(("a", 1), (None, 2), (None, 3)), uri)
    schema = RowSchema(SCHEMA, ("region", "id"), ("region",))
    for keys_at_once in (1, 100):
        with pytest.raises(InvalidSchema, match="'region' is null in 2 rows"):
            check_unique_keys(LanceTable(uri).newest(), schema, keys_at_once)


CONVERTED: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([DAY, None, datetime.date(1, 1, 1)], pa.date64()), pa.date32()),
    (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
    (pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.int8()), pa.array(["x", "y"])), pa.string()),
    (pa.array([["a"], None, []], pa.large_list(pa.string())), pa.list_(pa.string())),
    (pa.array([["a"], None, []], pa.large_list(pa.large_string())), pa.list_(pa.large_string())),
    (pa.array([[DAY], None, []], pa.list_(pa.date64())), pa.list_(pa.date32())),
    (pa.array([-1, None, 2], pa.timestamp("us", "Europe/Oslo")), pa.timestamp("us", "UTC")),
    (pa.array([-1, None, 2], pa.timestamp("ns", "+02:00")), pa.timestamp("ns", "UTC")),
]


@pytest.mark.parametrize(("column", "becomes"), CONVERTED, ids=[str(column.type) for column, _ in CONVERTED])
def test_a_column_of_another_form_is_converted_as_the_message_says(
    tmp_path: Path, column: pa.Array, becomes: pa.DataType
) -> None:
    uri = str(tmp_path / "t")
    dataset = lance.write_dataset(pa.table({"id": [1, 2, 3], "c": column}), uri)
    declared = Settings(table=TableSettings(uri=uri, primary_key=("id",), region_key=("id",)))
    with pytest.raises(InvalidSchema, match=r"column 'c': type .* is not supported.*convert the column by `") as caught:
        existing_rows(LanceTable(uri).newest(), declared)
    (advice,) = re.findall(r"`(dataset\.alter_columns\(.*\))`", str(caught.value))
    eval(advice, {"dataset": dataset, "pa": pa})
    assert existing_rows(LanceTable(uri).newest(), declared).columns.field("c").type == becomes
    found = lance.dataset(uri).to_table()["c"].to_pylist()
    assert found == column.cast(becomes).to_pylist() == ([v and v.astimezone(datetime.UTC) if hasattr(v, "tzinfo") else v
                                                         for v in column.to_pylist()])  # fmt: skip


@pytest.mark.parametrize(
    "column", [pa.array([1], pa.float16()), pa.array([{"x": DAY}], pa.struct([("x", pa.date64())]))], ids=str
)
def test_a_column_that_lance_cannot_convert_is_refused_without_a_way(tmp_path: Path, column: pa.Array) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1], "c": column}), uri)
    declared = Settings(table=TableSettings(uri=uri, primary_key=("id",), region_key=("id",)))
    with pytest.raises(InvalidSchema, match=r"column 'c': type .* is not supported") as caught:
        existing_rows(LanceTable(uri).newest(), declared)
    assert "alter_columns" not in str(caught.value)
