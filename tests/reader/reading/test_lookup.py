"""``Table.get``: rows by their key, beside a dict; whatever the key index covers, and whatever of it is lost."""

from __future__ import annotations

import errno
import re
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from threading import Event, Lock
from typing import Any

import lance
import pandas
import polars
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput, OutsideHistoryWindow, VersionGone
from lancewal_core.keys.catalog import KeyPart
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.parts import PartSource
from lancewal_core.keys.run import Entries
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import Column, Contract, encode_contract
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.forms.given_keys import keys_of, region_key_of
from lancewal_reader.plan.strong import RegionDelta
from lancewal_reader.reading import lookup, scan
from lancewal_reader.reading.lookup import deltas_of
from lancewal_reader.table import Table, open_table
from lancewal_reader.unmerged import load as load_module
from lancewal_reader.unmerged.load import DeltaContext
from tests.support.flusher_tables import FlusherTable, upserts
from tests.support.pipeline import EVERY_TYPE, KEY, SMALL, Key, Pipeline, Row, by_key


@pytest.fixture
def pipeline(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, getattr(request, "param", SMALL))
    yield made
    made.close()


def some_keys(pipeline: Pipeline, rng: Random) -> list[Key]:
    """Of rows, of deleted ones, and of none, in any order."""
    keys = [*pipeline.oracle, *((f"r{rng.randrange(14)}", rng.randrange(40)) for _ in range(20))]
    chosen = list(dict.fromkeys(rng.sample(keys, rng.randint(1, len(keys)))))
    rng.shuffle(chosen)
    return chosen


def expected(keys: Sequence[Key], rows: dict[Key, Row]) -> list[Row]:
    return [rows[key] for key in keys if key in rows]


@pytest.mark.in_turns("seed", each=3)
@pytest.mark.parametrize("seed", range(3))
def test_each_key_has_its_row_in_the_order_asked(tmp_path: Path, seed: int) -> None:
    pipeline = Pipeline(tmp_path, EVERY_TYPE, seed=seed)
    rng = pipeline.rng
    kept, merged = open_table(pipeline.uri), dict[Key, Row]()
    earlier: list[tuple[Any, dict[Key, Row]]] = []
    for _ in range(10):
        pipeline.produce(rng.randrange(80))
        pipeline.ingest()
        for reader in (kept, open_table(pipeline.uri)):
            keys = some_keys(pipeline, rng)
            assert reader.get(keys).to_arrow().to_pylist() == expected(keys, pipeline.oracle)
            assert reader.get(keys, consistency="eventual").to_arrow().to_pylist() == expected(keys, merged)
            region = rng.choice(keys)[0]
            own = [key for key in keys if key[0] == region]
            assert reader.get(own, region_key=region).to_arrow().to_pylist() == expected(own, pipeline.oracle)
            of_region = {key: row for key, row in pipeline.oracle.items() if key[0] == region}
            assert by_key(reader.get(region_key=region).to_arrow()) == of_region
            assert reader.count_rows() == len(pipeline.oracle)
            assert reader.count_rows(consistency="eventual") == len(merged)
        if earlier:
            keys, (receipt, rows) = some_keys(pipeline, rng), rng.choice(earlier)
            assert kept.get(keys, at=receipt).to_arrow().to_pylist() == expected(keys, rows)
            assert kept.count_rows(at=receipt) == len(rows)
        earlier.append((kept.receipt(), dict(pipeline.oracle)))
        match rng.randrange(4):
            case 0:
                pipeline.crash()
            case 1:
                pipeline.merge_all(MergeLimits(adopt_rows=rng.choice([1, 30, 1000])))
                merged = dict(pipeline.oracle)
            case 2:
                pipeline.hand_over()
                pipeline.ingest()
    pipeline.close()


def merged_table(pipeline: Pipeline) -> Table:
    """Ids 0 to 99 with a = id, merged; then id 3 patched, id 4 deleted and id 5 written anew, which are not."""
    for id in range(100):
        pipeline.upsert("r1", id, a=id, s="old")
    pipeline.ingest()
    pipeline.merge_all()
    pipeline.patch("r1", 3, a=33)
    pipeline.delete("r1", 4)
    pipeline.upsert("r1", 5, a=55, s="new")
    pipeline.ingest()
    return open_table(pipeline.uri)


FOUND = [{"id": 5, "a": 55}, {"id": 9, "a": 9}, {"id": 3, "a": 33}]
ASKED = [("r1", 5), ("r1", 4), ("r1", 9), ("r1", 9), ("r1", 3), ("r1", 1000), ("nowhere", 9)]


@pytest.mark.parametrize(
    "keys",
    [
        ASKED,
        [{"id": id, "region": region} for region, id in ASKED],
        pa.table(
            {"more": [1] * 7, "id": pa.array([id for _, id in ASKED], pa.int32()), "region": [r for r, _ in ASKED]}
        ),
    ],
    ids=["tuples", "mappings", "Arrow"],
)
def test_keys_come_in_many_forms(pipeline: Pipeline, keys: Any) -> None:
    assert merged_table(pipeline).get(keys, ["id", "a"]).to_arrow().to_pylist() == FOUND


def test_what_the_index_covers_is_not_scanned(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    table = merged_table(pipeline)

    def scan(*_: object, **__: object) -> None:
        raise AssertionError("scanned")

    monkeypatch.setattr(LancePinnedTable, "scan", scan)
    assert table.get(ASKED, ["id", "a"]).to_arrow().to_pylist() == FOUND  # a patched row too


def test_rows_of_the_table_are_counted_without_a_scan(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    table = merged_table(pipeline)

    def scan(*_: object, **__: object) -> None:
        raise AssertionError("scanned")

    monkeypatch.setattr(LancePinnedTable, "scan", scan)
    assert table.count_rows() == 99
    # What was looked up stays so; another entry costs its own keys.
    asked: list[int] = []
    find = KeyIndex.find

    def found(self: KeyIndex, pinned: LancePinnedTable, keys: pa.Table) -> Any:
        asked.append(keys.num_rows)
        return find(self, pinned, keys)

    monkeypatch.setattr(KeyIndex, "find", found)
    assert table.count_rows() == 99
    assert asked == []
    pipeline.delete("r1", 10)
    pipeline.upsert("r1", 4, a=4, s="again")
    for id in (500, 501):
        pipeline.patch("r1", id, a=1)
    pipeline.ingest()
    assert table.count_rows() == 101 == open_table(pipeline.uri).count_rows()
    assert asked == [3, 6]
    # Of another version nothing is known.
    monkeypatch.undo()
    pipeline.merge_all()
    for id in (3, 5, 10, 500, 501):
        pipeline.patch("r1", id, a=2)
    pipeline.delete("r1", 4)
    pipeline.ingest()
    assert table.count_rows() == 101 == open_table(pipeline.uri).count_rows()


@pytest.mark.parametrize("lost", ["catalog", "parts"])
def test_without_the_key_index_the_table_is_scanned(pipeline: Pipeline, lost: str) -> None:
    table = merged_table(pipeline)
    store = pipeline.store
    wanted = paths.key_catalog_prefix(None) if lost == "catalog" else paths.KEY_PARTS
    gone = [info.key for info in store.list(wanted)]
    assert gone
    store.delete(gone)
    assert table.get(ASKED, ["id", "a"]).to_arrow().to_pylist() == FOUND


def test_rows_read_again_are_those_of_the_receipt(pipeline: Pipeline) -> None:
    rows = merged_table(pipeline).get(ASKED, ["id", "a"])
    pipeline.upsert("r1", 9, a=99)
    pipeline.ingest()
    pipeline.merge_all()
    assert rows.to_arrow().to_pylist() == FOUND


def test_a_clean_up_between_plan_and_lookup_is_no_other_error(pipeline: Pipeline) -> None:
    """The version that was planned is at hand still, and the file of its rows is gone."""
    table = merged_table(pipeline)
    rows = table.get(ASKED, ["id", "a"])
    files = [Path(pipeline.uri) / "data" / f.data_files()[0].path for f in lance.dataset(pipeline.uri).get_fragments()]
    for id in (600, 601):
        pipeline.upsert("r1", id, a=1)
        pipeline.ingest()
        pipeline.merge_all()
        if id == 600:
            lance.dataset(pipeline.uri).optimize.compact_files(target_rows_per_fragment=10_000)
    lance.dataset(pipeline.uri).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert files
    assert not any(file.exists() for file in files)
    with pytest.raises((VersionGone, OutsideHistoryWindow)):
        rows.to_arrow()
    assert table.get(ASKED, ["id", "a"]).to_arrow().to_pylist() == FOUND


def test_a_count_goes_on_with_the_version_that_it_planned(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    table = merged_table(pipeline)
    opened: list[int] = []
    at = LanceTable.at

    def seen(self: LanceTable, version: int) -> LancePinnedTable:
        opened.append(version)
        return at(self, version)

    monkeypatch.setattr(LanceTable, "at", seen)
    assert table.count_rows() == 99
    assert table.get(ASKED, ["id", "a"]).to_arrow().to_pylist() == FOUND
    assert opened == []


def test_threads_share_a_table(pipeline: Pipeline) -> None:
    table = merged_table(pipeline)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: table.get(ASKED, ["id", "a"]).to_arrow().to_pylist(), range(12)))
    assert found == [FOUND] * 12


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("r1", "expected a list of keys"),
        (("r1", 5), "has 1 value;"),
        ([("r1", 5, 6)], "has 3 values"),
        ([{"id": 5}], "does not name the columns"),
        ([("r1", "five")], "column 'id' takes int64"),
        ([("r1", None)], "no value in column 'id'"),
        (pa.table({"id": [5]}), "column 'region' of the primary key"),
    ],
)
def test_what_is_no_key_is_refused(pipeline: Pipeline, keys: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        open_table(pipeline.uri).get(keys)


AT = datetime(2026, 3, 1, 12, 0, 0, 5_000)


def of_one(type_: pa.DataType) -> RowSchema:
    return RowSchema(pa.schema([pa.field("k", type_, nullable=False)]), ("k",), ("k",))


@pytest.mark.parametrize(
    ("type_", "given", "key"),
    [
        (pa.int64(), [7.0], 7),
        (pa.int64(), pa.table({"k": ["7"]}), 7),
        (pa.uint8(), [pa.scalar(200, pa.int64())], 200),
        (pa.date32(), [datetime(2026, 3, 1)], date(2026, 3, 1)),
        (pa.timestamp("ms"), [AT], AT),
        (pa.timestamp("us"), pa.table({"k": pa.array([AT], pa.timestamp("ns"))}), AT),
        (pa.string(), pa.table({"k": pa.array(["é"]).dictionary_encode()}), "é"),
        (pa.binary(), [""], b""),
        (pa.string(), pandas.DataFrame({"k": ["x"], "more": [1]}), "x"),
        (pa.string(), polars.DataFrame({"k": ["x"]}), "x"),
    ],
)
def test_a_key_is_taken_in_other_types(type_: pa.DataType, given: Any, key: object) -> None:
    assert keys_of(of_one(type_), given).to_pylist() == [{"k": key}]


@pytest.mark.parametrize(
    ("type_", "given"),
    [
        (pa.int64(), [7, 7.5]),
        (pa.int64(), [Decimal("7.5")]),
        (pa.int64(), pa.table({"k": ["007"]})),
        (pa.bool_(), pa.table({"k": [2]})),
        (pa.date32(), [AT]),
        (pa.date32(), pa.table({"k": [AT]})),
        (pa.timestamp("s"), [AT]),
        (pa.timestamp("ms"), pa.table({"k": [AT + timedelta(microseconds=1)]})),
        (pa.timestamp("us"), [pandas.Timestamp("2026-03-01 12:00:00.000000001")]),
    ],
)
def test_a_value_that_no_key_can_be_is_refused(type_: pa.DataType, given: Any) -> None:
    """It would be cut, and the row of another key be found."""
    with pytest.raises(InvalidInput, match=re.escape(f"column 'k' takes {type_}")):
        keys_of(of_one(type_), given)


def test_a_key_of_one_column_is_its_value() -> None:
    one = RowSchema(pa.schema([KEY[1], ("a", pa.int64())]), ("id",), ("id",))
    assert keys_of(one, [7, 3, 7]).to_pylist() == [{"id": 7}, {"id": 3}]


def test_of_a_region_key_only_its_partition_is_read(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    regions = {partition_of(f"r{n}".encode(), 3): f"r{n}" for n in range(12)}
    assert len(regions) == 3
    for region in regions.values():
        for id in range(3):
            pipeline.upsert(region, id, a=id)
    pipeline.ingest()
    loaded: list[int] = []
    load = load_module.load

    def seen(context: DeltaContext, deltas: Sequence[RegionDelta], *more: Any) -> Any:
        loaded.extend(delta.region.partition for delta in deltas)
        return load(context, deltas, *more)

    monkeypatch.setattr(scan, "load", seen)
    for partition, region in regions.items():
        for keys in ([(region, 1)], None):
            loaded.clear()
            rows = open_table(pipeline.uri).get(keys, region_key=region).to_arrow().to_pylist()
            assert [row["id"] for row in rows] == ([1] if keys else [0, 1, 2])
            assert set(loaded) == {partition}
    open_table(pipeline.uri).get([(region, 1)]).to_arrow()
    assert set(loaded) == {0, 1, 2}


def test_what_came_by_another_number_of_partitions_is_read_too(pipeline: Pipeline) -> None:
    """Behind the positions of the change each partition has its own keys; before them, and in another topic, it may not."""
    contract = pipeline.contract.model_copy(update={"partitions": 4, "altered_at": (-1, 50, 50)})

    def delta(partition: int, first: int, topic_id: str = contract.topic_id) -> RegionDelta:
        return RegionDelta(Region(contract.topic, TopicId(topic_id), partition), (), Position(first))

    deltas = (delta(0, 0), delta(1, 49), delta(2, 50), delta(3, 0), delta(2, 90, "former"))
    assert deltas_of(contract, deltas, 3) == (deltas[1], deltas[3], deltas[4])
    assert deltas_of(contract, deltas, 2) == (deltas[1], deltas[2], deltas[4])
    assert deltas_of(pipeline.contract, deltas, 0) == (deltas[0], deltas[4])


def test_a_kept_reader_takes_the_partition_of_the_newest_contract(tmp_path: Path) -> None:
    """Its handle is from before partitions were added: what came since lies where the new number says."""
    table = FlusherTable(tmp_path, 2)
    kept = open_table(table.uri)
    moved = next(n for n in range(20) if partition_of(f"r{n}".encode(), 4) >= 2)
    table.contract = table.contract.model_copy(update={"version": 2, "partitions": 4, "altered_at": (0, 0)})
    table.store.put_if_absent(paths.contract_version(2, None), encode_contract(table.contract))
    table.generation(partition_of(f"r{moved}".encode(), 4), upserts([7], a=70), of=moved)
    assert [row["a"] for row in kept.get([(f"r{moved}", 7)], region_key=f"r{moved}").to_arrow().to_pylist()] == [70]
    table.close()


REGION_KEYS: dict[str, list[Any]] = {
    "string": ["", "a", "it's", "`", "ä\n", "NULL"],
    "int8": [-128, 0, 127],
    "uint64": [0, 2**63, 2**64 - 1],
    "int64": [-(2**63), 2**63 - 1],
    "bool": [True, False],
    "date32": [date(1, 1, 1), date(2026, 1, 31), date(9999, 12, 31)],
    "binary": [b"", b"\x00\xff", b"'"],
}


@pytest.mark.parametrize("name", REGION_KEYS)
def test_every_type_of_a_region_key_finds_its_rows(name: str, pipeline: Pipeline) -> None:
    type_ = parse_type(name)
    columns = (Column(name="r", type=name, field_ids=(0,)), Column(name="id", type="int64", field_ids=(1,)))
    keys = {"primary_key": ("r", "id"), "region_key": ("r",)}
    contract = pipeline.contract.model_copy(update={**keys, "columns": columns})
    contract = Contract.model_validate(contract.model_dump())
    stored = lance.write_dataset(
        pa.table({"r": pa.array(REGION_KEYS[name], type_), "id": range(len(REGION_KEYS[name]))}), "memory://"
    )
    for at, value in enumerate(REGION_KEYS[name]):
        found = region_key_of(contract, value)
        assert found.encoded == encode_region_key(value)
        assert stored.to_table(filter=found.filter)["id"].to_pylist() == [at]


@pytest.mark.parametrize(
    ("key", "has"), [("UA", "1 value"), (("UA",), "1 value"), ((), "0 values"), (("UA", 7, 8), "3 values")]
)
def test_a_key_of_too_few_or_too_many_values_is_told_which_are_expected(key: object, has: str) -> None:
    schema = RowSchema(pa.schema(KEY), ("region", "id"), ("region",))
    said = f"keys: {key!r} has {has}; expected one for each column of ['region', 'id']"
    with pytest.raises(InvalidInput, match=f"^{re.escape(said)}$"):
        keys_of(schema, [("r1", 7), key])


def test_what_is_no_region_key_is_refused(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    with pytest.raises(InvalidInput, match="name primary keys, or a region_key"):
        table.get()
    with pytest.raises(InvalidInput, match=r"'region': 'r2', 'id': 5\} does not have the value of region_key"):
        table.get([("r1", 5), ("r2", 5)], region_key="r1")
    with pytest.raises(InvalidInput, match="region_key: column 'region' takes string"):
        table.get(region_key=7)
    with pytest.raises(
        InvalidInput, match=r"^region_key: \('r1', 7\) has 2 values; expected one for each column of \['region'\]$"
    ):
        table.get(region_key=("r1", 7))
    bytes_ = pipeline.contract.model_copy(update={"key_format": "bytes", "region_key": ()})
    with pytest.raises(InvalidInput, match="do not show their partition"):
        region_key_of(bytes_, "r1")


class HeldUp:
    """The parts of a key index; the first thread that opens one is held up until it is let go."""

    def __init__(self, parts: PartSource) -> None:
        self._parts, self._first, self._lock = parts, True, Lock()
        self.held, self.let_go = Event(), Event()

    def open(self, part: KeyPart) -> Entries:
        with self._lock:
            first, self._first = self._first, False
        if first:
            self.held.set()
            assert self.let_go.wait(60)
        return self._parts.open(part)

    def at_hand(self, part: KeyPart) -> bool:
        return self._parts.at_hand(part)

    def keep(self, part: KeyPart, data: bytes) -> None:
        self._parts.keep(part, data)


def test_no_thread_waits_for_what_another_fetches(pipeline: Pipeline) -> None:
    table = merged_table(pipeline)
    table.get([("r1", 7)]).to_arrow()
    index = table._reads._lookup._index
    assert index is not None
    index.parts = parts = HeldUp(index.parts)
    with ThreadPoolExecutor(2) as pool:
        waits = pool.submit(lambda: table.get([("r1", 8)]).to_arrow().to_pylist())
        assert parts.held.wait(60)
        goes = pool.submit(lambda: table.get([("r1", 9)]).to_arrow().to_pylist())
        try:
            assert goes.result(60)[0]["id"] == 9
            assert not waits.done()
        finally:
            parts.let_go.set()
        assert waits.result(60)[0]["id"] == 8


def test_a_local_table_takes_no_folder_for_temporary_files(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = merged_table(pipeline)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert table.get([("r1", 7)]).to_arrow().num_rows == 1


@pytest.mark.parametrize("none", ["none/at/all", ""])
def test_where_no_file_can_be_written_parts_are_read_from_memory(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, none: str
) -> None:
    """As in a container whose file system is read-only; a folder as a far store has none."""

    def refused(**_: object) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(lookup, "local_folder", lambda uri: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / none))
    if not none:
        monkeypatch.setattr(tempfile, "mkdtemp", refused)
    table = merged_table(pipeline)
    assert table.get([("r1", 7)]).to_arrow().num_rows == 1
    assert table.count_rows() == len(pipeline.oracle)
    assert not list(tmp_path.glob("lancewal-lookup-*"))
