"""``Table.scan`` over production code's tables, against a dict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lancewal_core.errors import InvalidInput, NotALancewalTable, TableMissing
from lancewal_core.names.ids import Position
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import AllBut
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.reading import scan
from lancewal_reader.reading.filter import check_filter, filter_rows
from lancewal_reader.reading.lookup import KeyLookup
from lancewal_reader.reading.scan import BATCH_ROWS, base_batches, batch_rows
from lancewal_reader.table import open_table
from tests.support.pipeline import EVERY_TYPE, KEY, SMALL, Key, Pipeline, Row, by_key

FILTERS: list[tuple[str, Callable[[Row], bool]]] = [
    ("a > 3", lambda r: r["a"] is not None and r["a"] > 3),
    ("a IS NULL OR f > 0.5", lambda r: r["a"] is None or (r["f"] is not None and r["f"] > 0.5)),
    ("s = 'a''b' AND ok", lambda r: r["s"] == "a'b" and r["ok"] is True),
    ("dec < CAST('0.00' AS DECIMAL(12,2))", lambda r: r["dec"] is not None and r["dec"] < 0),
    ("day >= date '1990-01-01'", lambda r: r["day"] is not None and r["day"].isoformat() >= "1990-01-01"),
    ("region IN ('r1', 'r2') AND id % 2 = 0", lambda r: r["region"] in ("r1", "r2") and r["id"] % 2 == 0),
]


@pytest.fixture
def pipeline(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, getattr(request, "param", SMALL))
    yield made
    made.close()


@pytest.mark.in_turns("seed", each=4)
@pytest.mark.parametrize("seed", range(4))
def test_every_read_is_the_fold_of_what_is_durable(tmp_path: Path, seed: int) -> None:
    pipeline = Pipeline(tmp_path, EVERY_TYPE, seed=seed)
    rng = pipeline.rng
    kept = open_table(pipeline.uri)
    merged: dict[Key, Row] = {}
    for _ in range(10):
        pipeline.produce(rng.randrange(80))
        pipeline.ingest()
        for reader in (kept, open_table(pipeline.uri)):
            rows = reader.to_arrow()
            assert by_key(rows) == pipeline.oracle
            assert rows.schema.equals(EVERY_TYPE.remove_metadata())
            assert by_key(reader.to_arrow(consistency="eventual")) == merged
        sql, passes = rng.choice(FILTERS)
        columns = ["region", "id", *rng.sample([f.name for f in EVERY_TYPE if f.name not in ("region", "id")], 3)]
        rng.shuffle(columns)
        some = kept.to_arrow(columns=columns, filter=sql)
        assert some.column_names == columns
        assert by_key(some) == {
            key: {name: row[name] for name in columns} for key, row in pipeline.oracle.items() if passes(row)
        }
        match rng.randrange(5):
            case 0:
                pipeline.crash()
            case 1:
                pipeline.merge_all(MergeLimits(adopt_rows=rng.choice([1, 30, 1000])))
                merged = dict(pipeline.oracle)
            case 2:
                pipeline.hand_over()
                pipeline.ingest()
    pipeline.close()


@pytest.mark.parametrize("seed", range(2))
def test_rows_hidden_by_their_addresses_are_those_that_their_keys_hide(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = Pipeline(tmp_path, SMALL, seed=seed)
    rng = pipeline.rng
    # However many keys there are: tables of tests have more unmerged rows than merged ones.
    monkeypatch.setattr(scan, "_LOOKED_UP_ONE_OF", 0.001)
    seen: set[str] = set()
    scan_version, find = LancePinnedTable.scan, KeyLookup.addresses

    def scanned(self: LancePinnedTable, columns: Sequence[str], **how: Any) -> Iterator[pa.RecordBatch]:
        if isinstance(rows := how.get("rows"), AllBut):
            assert len(rows.addresses) == len(np.unique(rows.addresses))
            seen.add("by address" if list(columns) == ["s"] else "")
        return scan_version(self, columns, **how)

    def found(self: KeyLookup, pinned: LancePinnedTable, keys: pa.Table) -> Any:
        seen.add("some looked up" if keys.num_rows else "none looked up")
        return find(self, pinned, keys)

    monkeypatch.setattr(LancePinnedTable, "scan", scanned)
    monkeypatch.setattr(KeyLookup, "addresses", found)
    kept = open_table(pipeline.uri)
    earlier: list[tuple[Any, list[Any]]] = []
    for _ in range(12):
        pipeline.produce(rng.randrange(60))
        pipeline.ingest()
        values = sorted(map(str, (row["s"] for row in pipeline.oracle.values())))
        assert sorted(map(str, kept.to_arrow(["s"])["s"].to_pylist())) == values
        assert by_key(kept.to_arrow()) == pipeline.oracle
        odd = [row for row in pipeline.oracle.values() if row["a"] is not None and row["a"] % 2]
        assert kept.to_arrow(["s"], "a % 2 = 1").num_rows + kept.to_arrow(["s"], "a % 2 = -1").num_rows == len(odd)
        assert kept.count_rows() == len(pipeline.oracle)
        if earlier:
            receipt, then = rng.choice(earlier)
            assert sorted(map(str, kept.to_arrow(["s"], at=receipt)["s"].to_pylist())) == then
        earlier.append((kept.receipt(), values))
        match rng.randrange(4):
            case 0:
                pipeline.merge_all(MergeLimits(adopt_rows=rng.choice([1, 30, 1000])))
            case 1:
                pipeline.crash()
    pipeline.close()
    assert {"by address", "some looked up"} <= seen


def test_of_an_open_table_the_second_scan_looks_keys_up(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    for id in range(200):
        pipeline.upsert("r1", id, a=id)
    pipeline.merge_all()
    pipeline.upsert("r1", 7, a=-7)
    pipeline.delete("r1", 8)
    pipeline.ingest()
    table, read = open_table(pipeline.uri), list[list[str]]()

    def noted(scan_version: Callable[..., Iterator[pa.RecordBatch]]) -> Callable[..., Iterator[pa.RecordBatch]]:
        def scanned(self: LancePinnedTable, columns: Sequence[str], **how: Any) -> Iterator[pa.RecordBatch]:
            read.append(list(columns))
            return scan_version(self, columns, **how)

        return scanned

    monkeypatch.setattr(LancePinnedTable, "scan", noted(LancePinnedTable.scan))
    left = sorted([-7, *(id for id in range(200) if id not in (7, 8))])
    for columns in (["a", "region", "id"], ["a"], ["a"]):
        assert sorted(table.to_arrow(["a"])["a"].to_pylist()) == left
        assert read.pop() == columns
    pipeline.upsert("r1", 9, a=-9)
    pipeline.ingest()
    assert sorted(table.to_arrow(["a"])["a"].to_pylist()) == sorted([-9, *(a for a in left if a != 9)])
    assert read == [["a"]]


def test_columns_without_the_key_and_without_the_filters_columns(pipeline: Pipeline) -> None:
    pipeline.produce(100)
    pipeline.merge_all()
    pipeline.produce(100)
    pipeline.ingest()
    rows = open_table(pipeline.uri).to_arrow(columns=["s"], filter="a > 500 OR a < 100 OR a IS NULL")
    expected = [r["s"] for r in pipeline.oracle.values() if r["a"] is None or r["a"] > 500 or r["a"] < 100]
    assert rows.column_names == ["s"]
    assert sorted(rows["s"].to_pylist(), key=str) == sorted(expected, key=str)


def test_a_patch_of_a_merged_row_overlays_it_whatever_columns_are_read(pipeline: Pipeline) -> None:
    pipeline.upsert("r1", 1, a=1, s="old")
    pipeline.upsert("r1", 2, a=2, s="old")
    pipeline.merge_all()
    pipeline.patch("r1", 1, s="new")
    pipeline.patch("r1", 2, a=None)
    pipeline.patch("r1", 3, a=3)  # nothing below it
    pipeline.ingest()
    table = open_table(pipeline.uri)
    assert by_key(table.to_arrow()) == pipeline.oracle
    assert sorted(table.to_arrow(columns=["id", "a"])["a"].to_pylist(), key=str) == [1, 3, None]
    assert table.to_arrow(columns=["id"], filter="s = 'old'")["id"].to_pylist() == [2]
    assert table.to_arrow(columns=["id"], filter="s = 'new' AND a = 1")["id"].to_pylist() == [1]


def test_a_filter_does_not_bring_back_masked_rows(pipeline: Pipeline) -> None:
    pipeline.upsert("r1", 1, a=100, s="x")
    pipeline.upsert("r1", 2, a=100, s="x")
    pipeline.merge_all()
    pipeline.upsert("r1", 1, a=5, s="x")
    pipeline.delete("r1", 2)
    pipeline.ingest()
    assert open_table(pipeline.uri).to_arrow(filter="a = 100").num_rows == 0


@pytest.mark.parametrize("pipeline", [EVERY_TYPE], indirect=True)
def test_nan_passes_a_filter_on_both_sides_alike(pipeline: Pipeline) -> None:
    pipeline.upsert("r1", 1, f=0.75)
    pipeline.merge_all()
    pipeline.append_by_hand([{"region": "r1", "id": 7, "f": math.nan}, {"region": "r1", "id": 8, "f": 0.25}])
    # JSON has no NaN: a patch that leaves f alone carries the table's NaN into the delta.
    pipeline.append_by_hand([{"region": "r1", "id": 9, "f": math.nan}])
    pipeline.patch("r1", 9, s="patched")
    pipeline.ingest()
    found = open_table(pipeline.uri).to_arrow(columns=["id", "s"], filter="f > 0.5").to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [
        {"id": 1, "s": None},
        {"id": 7, "s": None},
        {"id": 9, "s": "patched"},
    ]


def test_filter_of_a_delta_is_lances_own(tmp_path: Path) -> None:
    rows = pa.table({"f": [1.0, math.nan, None, 0.0], "g": [1, 2, 3, 4]})
    assert filter_rows(rows, "f > 0.5", ["g"])["g"].to_pylist() == [1, 2]
    assert filter_rows(rows, None, ["g"])["g"].to_pylist() == [1, 2, 3, 4]


def test_the_receipt_names_version_and_positions(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    pipeline.produce(50)
    pipeline.merge_all()
    pipeline.produce(50)
    pipeline.ingest()
    ends = {r: Position(len(pipeline._messages[r.partition])) for r in pipeline.contract.regions}
    strong = receipt_of(table.scan().schema)
    assert (strong.table_uuid, strong.positions) == ("table-uuid", ends)
    eventual = receipt_of(table.to_arrow(consistency="eventual").schema)
    assert eventual.version == strong.version
    assert sum(eventual.positions.values()) == 50
    with pytest.raises(InvalidInput, match=r"has no metadata lancewal\.receipt"):
        receipt_of(SMALL)


def test_reads_of_one_table_object_never_go_back(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    seen = receipt_of(table.scan().schema)
    for _ in range(6):
        pipeline.produce(20)
        pipeline.ingest()
        if pipeline.rng.random() < 0.5:
            pipeline.merge_all()
        found = receipt_of(table.scan().schema)
        assert found.version >= seen.version
        assert all(found.positions[region] >= position for region, position in seen.positions.items())
        seen = found


def test_a_merge_during_a_scan_does_not_change_it(pipeline: Pipeline) -> None:
    pipeline.produce(150)
    pipeline.ingest()
    expected = dict(pipeline.oracle)
    reader = open_table(pipeline.uri).scan()
    pipeline.produce(100)
    pipeline.merge_all()
    assert by_key(reader.to_arrow()) == expected


def test_an_empty_table_has_its_schema(pipeline: Pipeline) -> None:
    rows = open_table(pipeline.uri).to_arrow()
    assert (rows.num_rows, rows.schema.names) == (0, SMALL.names)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"columns": ["nope"]}, r"\['nope'\] unknown; name each wanted column once; the table has"),
        ({"columns": ["a", "a"]}, "name each wanted column once"),
        ({"columns": []}, "name each wanted column once"),
        ({"columns": "a"}, "must be a list of names"),
        ({"filter": "nope > 1"}, "filter 'nope > 1' is not accepted"),
        ({"filter": "a >"}, "filter 'a >' is not accepted"),
        ({"filter": "a = ?"}, r"filter 'a = \?' is not accepted"),
        ({"filter": "a > 1 AND _rowid < 5"}, "names '_rowid', which is not a column of the table"),
        ({"filter": "`_rowaddr` < 5"}, "names '_rowaddr', which is not a column of the table"),
        ({"filter": "_row_created_at_version>1 OR s = '_rowid'"}, "names '_row_created_at_version'"),
        (
            {"filter": 7},
            "filter: expected a condition in Lance's SQL as text, .* an expression .* not int",
        ),
        ({"filter": pc.field("_rowid") > 3}, "names '_rowid'"),
        ({"columns": 3}, "columns must be a list of names, not 3"),
        ({"consistency": "weak"}, "consistency 'weak' is unknown"),
    ],
)
def test_wrong_arguments_are_named(pipeline: Pipeline, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        open_table(pipeline.uri).scan(**arguments)


def test_a_filter_may_have_such_names_in_texts_and_structs() -> None:
    schema = pa.schema([("s", pa.string()), ("st", pa.struct([("_rowid", pa.int64())])), ("a_rowid", pa.int64())])
    for filter in ("s = '_rowid'", 's = "_rowid"', "s = 'it''s _rowid'", "st._rowid < 1 OR st.`_rowid` > a_rowid"):
        check_filter(schema, filter)


def test_names_stand_in_backticks_and_texts_in_quotes_of_either_kind() -> None:
    rows = pa.table({"unit price": [7, 8], "status": ["open", "status"]})
    assert filter_rows(rows, "`unit price` > 7", ["status"])["status"].to_pylist() == ["status"]
    assert filter_rows(rows, "\"status\" = 'open'", ["status"]).num_rows == 0
    assert filter_rows(rows, 'status = "open"', ["unit price"])["unit price"].to_pylist() == [7]


def test_an_address_may_be_a_path(pipeline: Pipeline) -> None:
    opened = open_table(Path(pipeline.uri))
    assert opened.uri == pipeline.uri
    assert opened.to_arrow().num_rows == open_table(pipeline.uri).to_arrow().num_rows


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"table": None}, r"table None: expected its address: a local path, file://, or in a store"),
        ({"table": b"/t"}, r"table b'/t': expected its address"),
        ({"storage_options": {"allow_http": True}}, r"storage_options: expected texts, as in"),
    ],
)
def test_an_address_that_is_no_text_is_refused(arguments: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=text):
        open_table(**{"table": str(tmp_path), **arguments})


def test_what_is_no_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableMissing, match="there is no table at"):
        open_table(str(tmp_path / "nothing"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(TableMissing, match="no Lance table at"):
        open_table(str(tmp_path / "folder"))
    lance.write_dataset(SMALL.empty_table(), str(tmp_path / "plain"))
    with pytest.raises(NotALancewalTable, match="lancewal table attach"):
        open_table(str(tmp_path / "plain"))


def test_batches_of_wide_rows_have_fewer_rows() -> None:
    assert batch_rows(SMALL) == BATCH_ROWS
    wide = pa.schema([*KEY, ("vec", pa.list_(pa.float32(), 1536))])
    assert 512 <= batch_rows(wide) < 6_000


@pytest.mark.parametrize("key", [("id",), ("s", "id")])
@pytest.mark.parametrize("filter", [None, "a < 70"])
def test_base_rows_of_a_key_of_one_or_two_columns_are_masked(
    tmp_path: Path, key: tuple[str, ...], filter: str | None
) -> None:
    columns = pa.schema([("id", pa.int64()), ("s", pa.string()), ("a", pa.int64())])
    rows = pa.table({"id": range(100), "s": [f"s{i % 7}" for i in range(100)], "a": range(100)}, columns)
    lance.write_dataset(rows, str(tmp_path / "t"), max_rows_per_file=30)
    masked = [i for i in range(100) if i % 3 == 0]
    schema = RowSchema(columns, key, key[:1])
    mask = KeySet(rows.select(list(key)).take(masked))
    tasks = ThreadTasks()
    scan = partial(LanceTable(str(tmp_path / "t")).newest().scan, filter=filter, fragment_ids=[0, 2])
    found = base_batches(tasks, scan, lambda: mask, schema, ["a"])
    expected = [i for i in [*range(30), *range(60, 90)] if i % 3 and (filter is None or i < 70)]
    assert sorted(v for batch in found for v in batch.column("a").to_pylist()) == expected
    tasks.close()
