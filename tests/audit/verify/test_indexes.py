"""``lancewal verify --indexes`` and ``lancewal repair index``: what Lance's own acts make wrong is found, and mended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import typer
import yaml
from lance import LanceDataset, LanceOperation, Transaction
from lance.dataset import serialize_row_addrs
from lance.indices import IndexConfig
from typer.testing import CliRunner

from lancewal_audit.commands.repair import app
from lancewal_audit.commands.verify import command
from lancewal_audit.verify.index_answers import values_of
from lancewal_audit.verify.index_check import _why_not
from lancewal_audit.verify.index_vectors import VectorRow, ask_vectors
from lancewal_audit.verify.report import Report, report_text
from lancewal_audit.verify.verification import VerifyRequest, verify_table
from lancewal_core.cli.groups import with_options
from lancewal_core.errors import LancewalError, RepairRefused
from lancewal_core.rows.column_types import stored_type
from lancewal_core.rows.schema import Op, RowSchema
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.table.lance.index_build import IndexBuild, build_again, index_builds
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.forms.sql_literals import literal
from tests.support.flusher_tables import KeyedTable, Operation
from tests.support.indexed_tables import BITS, SCALAR, SCHEMA, VECTORS, WIDTH, AllIndexes, values
from tests.support.repairs import content

KEPT_OLD = {"num_idx", "cat_idx", "tags_idx", "text_idx"}
"""What finds rows by old values, after columns were written in place."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[bool, AllIndexes]]:
    made = {
        stable: AllIndexes.filled(tmp_path_factory.mktemp("table"), stable_row_ids=stable) for stable in (False, True)
    }
    yield made
    for table in made.values():
        table.close()


@pytest.fixture
def table(filled: Mapping[bool, AllIndexes], tmp_path: Path) -> AllIndexes:
    return filled[False].copied(tmp_path)


def verify(uri: str, keys: int | None = 60) -> Report:
    return verify_table(Settings(table=TableSettings(uri=uri)), uri, VerifyRequest(sources="wal", index_keys=keys))


def found(report: Report) -> dict[str, int]:
    """Findings by index."""
    return {index.name: index.findings for index in report.indexes if index.findings}


def run(table: AllIndexes, *arguments: str) -> str:
    """``lancewal repair index ARGUMENTS``."""
    config = table.folder / "lancewal.yaml"
    config.write_text(yaml.safe_dump({"table": {"uri": table.uri}}))
    done = CliRunner().invoke(app, ["index", *arguments, "--config", str(config)])
    if isinstance(done.exception, LancewalError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def write_in_place(table: AllIndexes, ids: Sequence[int], age: int, names: Sequence[str]) -> None:
    """A user's."""
    rows = pa.Table.from_pylist([{"id": id, **values(id, age)} for id in ids], SCHEMA).select(["id", *names])
    table.dataset.merge_insert("id").when_matched_update_all().write_mode("rewrite_columns").execute(rows)


# -- verify ------------------------------------------------------------------------------------------------------


def test_a_sound_table_is_equal_and_says_what_it_looked_at(table: AllIndexes) -> None:
    table.adopt()
    table.delete_some()
    before = content(table.uri)
    report = verify(table.uri)
    assert report.equal, report_text(report)
    assert content(table.uri) == before
    assert sorted(index.column for index in report.indexes) == sorted([*SCALAR, *VECTORS, *BITS])
    assert all(index.looked_at and index.asked for index in report.indexes), report_text(report)
    assert {index.unindexed_rows for index in report.indexes} == {
        sum(f.count_rows() for f in table.dataset.get_fragments() if f.fragment_id > 5)
    }
    without = verify(table.uri, None)
    assert without.indexes == ()
    assert without.notes[-1] == f"secondary indexes that were not looked at: {len(report.indexes)}; --indexes does"


def test_old_values_are_found_and_mended(table: AllIndexes) -> None:
    """Columns written in place by a user, and upkeep that leaves the older segment."""
    ids = table.some(1, 30)
    write_in_place(table, ids, 50, ["num", "cat", "tags", "title", "zone", "bloom", "text", "v_pq"])
    table.dataset.optimize.optimize_indices(num_indices_to_merge=0)
    report = verify(table.uri)
    assert found(report).keys() == KEPT_OLD
    assert found(report)["num_idx"] > 5
    wrong = [f.key for f in report.findings if f.kind == "index_wrong" and f.where == "index num_idx"]
    assert {key["id"] for key in wrong if key} <= set(ids)
    assert report.counts["index_twice"] > 0
    assert "index_missing" not in report.counts

    answer = CliRunner().invoke(
        _command(), ["-t", table.uri, "--from", "wal", "--indexes", "--index-keys", "100", "--output", "json"]
    )
    assert answer.exit_code == 1, answer.output
    told = {index["name"]: index["repair"] for index in json.loads(answer.stdout)["indexes"] if index["repair"]}
    assert told == {name: f"lancewal repair index {name}" for name in KEPT_OLD}
    assert "rebuild it: lancewal repair index text_idx" in report_text(report)

    before = content(table.uri)
    assert "segments" in run(table, "text_idx", "--dry-run")
    assert content(table.uri) == before
    rows = table.dataset.to_table()
    for name in sorted(KEPT_OLD):
        for _ in range(2):
            assert "is rebuilt" in run(table, name)
    assert found(verify(table.uri)) == {}
    assert table.dataset.to_table().equals(rows)


def test_rows_that_an_index_misses(filled: Mapping[bool, AllIndexes], tmp_path: Path) -> None:
    """A commit that does not say which fields it keeps: Lance believes that the indexes cover the new rows."""
    table = filled[True].copied(tmp_path)
    ids = table.some(1, 30)
    dataset = table.dataset
    rows = pa.Table.from_pylist([{"id": id, **values(id, 0)} for id in ids], SCHEMA)
    new = lance.fragment.write_fragments(rows, dataset, mode="append")
    places = dataset.to_table(columns=["id"], filter=f"id in ({', '.join(map(str, ids))})", with_row_address=True)
    hidden = dataset.get_fragment(1).delete_rows([int(a) & 0xFFFFFFFF for a in places["_rowaddr"].to_pylist()])
    operation = LanceOperation.Update([], [hidden], new, [], [], "rewrite_rows")
    LanceDataset.commit(dataset, Transaction(dataset.version, operation))
    report = verify(table.uri, 150)
    assert {*report.counts} == {"index_missing"}, report_text(report)
    assert found(report).keys() >= {
        "cat_idx",
        "tags_idx",
        "title_idx",
        "text_idx",
        *(f"{name}_idx" for name in [*VECTORS, *BITS]),
    }
    for name in found(report):
        run(table, name)
    assert verify(table.uri).equal


def test_a_vector_with_a_null_in_it_is_not_asked_for(table: AllIndexes) -> None:
    """A user's: records have none."""
    torn = {name: [None, *[7] * (WIDTH - 1)] for name in [*VECTORS, *BITS]}
    theirs = [{"id": id, **values(id, 0), **torn} for id in range(50_000, 50_300)]
    lance.write_dataset(pa.Table.from_pylist(theirs, SCHEMA), table.uri, mode="append")
    report = verify(table.uri)
    assert report.equal, report_text(report)
    assert all(index.looked_at and index.asked for index in report.indexes), report_text(report)


def test_an_index_that_cannot_be_read(table: AllIndexes) -> None:
    for column in ("num", "text", "v_rq"):
        for uuid in _segments(table, column):
            for file in (Path(table.uri) / "_indices" / uuid).iterdir():
                file.write_bytes(file.read_bytes()[:40])
    report = verify(table.uri)
    assert report.counts == {"index_damaged": 3}, report_text(report)
    run(table, "num_idx")


class Stored:
    """A data set whose vector index holds ``codes`` by row id: Lance makes no wrong one, as far as is known."""

    def __init__(self, codes: Sequence[tuple[int, np.ndarray[Any, Any]]], metric: str) -> None:
        self._codes = codes
        self._apart = _l2 if metric == "l2" else _hamming

    def scanner(self, *, nearest: Mapping[str, Any], row_addr_allowlist: bytes, **_: Any) -> Stored:
        allowed = [id for id, _ in self._codes if serialize_row_addrs([id]) == row_addr_allowlist]
        self._found = [
            (id, self._apart(nearest["q"], code)) for id, code in self._codes if not allowed or id in allowed
        ]
        return self

    def to_table(self) -> pa.Table:
        ids, distances = zip(*self._found, strict=True) if self._found else ((), ())
        return pa.table({"_rowid": pa.array(ids, pa.int64()), "_distance": pa.array(distances, pa.float64())})


def _l2(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    return float(((one - other) ** 2).sum())


def _hamming(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    return float(sum((int(a) ^ int(b)).bit_count() for a, b in zip(one, other, strict=True)))


@pytest.mark.parametrize(("kind", "metric"), [("IVF_FLAT", "l2"), ("IVF_PQ", "l2"), ("IVF_FLAT", "hamming")])
def test_a_vector_index_that_holds_an_old_vector_or_one_twice(kind: str, metric: str) -> None:
    rng = np.random.default_rng(5)
    now, before = rng.standard_normal((6, 16)), rng.standard_normal((6, 16))
    before[4] = now[4] + 0.01  # too near to tell from what quantisation does
    if metric == "hamming":
        now, before = (rng.integers(0, 256, (6, 16)).astype(np.float64) for _ in range(2))
    rows = [VectorRow(i, 100 + i, now[i], [before[i]]) for i in range(6)]
    noise = rng.standard_normal((6, 16)) * (0.0 if kind == "IVF_FLAT" else 0.1)
    codes = [(100 + i, now[i] + noise[i]) for i in range(6)]
    build = IndexBuild("v_idx", kind, ("v",), {"metric": metric}, 2)
    answer = ask_vectors(Stored(codes, metric), build, rows)
    assert (answer.wrong, answer.twice, answer.missing) == ([], [], [])
    wrong = [(id, before[id - 100] + noise[id - 100] if id in (101, 103) else code) for id, code in codes]
    answer = ask_vectors(Stored([*wrong, codes[2]], metric), build, rows)
    assert (sorted(answer.wrong), answer.twice, answer.missing) == ([1, 3], [2], [])
    assert ask_vectors(Stored(codes[1:], metric), build, rows).missing == [0]


def test_what_cannot_be_looked_at_is_named(table: AllIndexes) -> None:
    table.dataset.create_scalar_index("title", "MINHASHLSH", name="near_idx")
    table.dataset.create_scalar_index("num", "BITMAP", name="a_second")
    table.dataset.create_scalar_index("place.a", "BTREE", name="nested")
    why = {index.name: index.why_not for index in verify(table.uri, 40).indexes if not index.looked_at}
    assert why.keys() <= {"near_idx", "a_second", "num_idx"}
    assert why["near_idx"] == "indexes of kind MinHashLsh are not known here"
    assert len(why) == 2
    with pytest.raises(RepairRefused, match="own parameters, as you first did"):
        run(table, "near_idx")
    with pytest.raises(LancewalError, match="has no index 'other'"):
        run(table, "other")


def test_a_table_without_an_index_is_compared_all_the_same(table: AllIndexes) -> None:
    for index in table.dataset.describe_indices():
        table.dataset.drop_index(index.name)
    report = verify(table.uri)
    assert report.equal, report_text(report)
    assert report.indexes == ()
    assert report.counts == {}
    write_in_place(table, table.some(1, 3), 50, ["num"])
    assert verify(table.uri).counts["differs"] == 3


def test_every_type_can_be_asked_for(tmp_path: Path) -> None:
    count = 40
    whole = pa.array([(i - 20) * 1_000_003 for i in range(count)], pa.int64())
    moments = {f"t_{unit}": whole.cast(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")}
    columns: dict[str, Any] = {
        "raw": pa.array([b"\xff\x00%d" % i for i in range(count)]),
        "day": pa.array(range(-20, 20), pa.int32()).cast(pa.date32()),
        "f8": pa.array([-(i + 1) / 3 for i in range(count)]),
        "i8": pa.array(range(-20, 20), pa.int8()), "u64": pa.array([2**64 - 1 - i for i in range(count)], pa.uint64()),
        "f4": pa.array([(i + 1) / 3 for i in range(count)], pa.float32()),
        "yes": pa.array([i % 2 == 0 for i in range(count)]), "text": pa.array([f"it's `{i}`" for i in range(count)]),
        "exact": pa.array([Decimal(i) / 8 for i in range(count)], pa.decimal128(20, 3)),
        "zoned": whole.cast(pa.timestamp("us", "UTC")), **moments,
        "far": pa.array([(i - 20) * 10**15 for i in range(count)]).cast(pa.timestamp("us")),
        "far_day": pa.array([(i - 20) * 10**6 for i in range(count)], pa.int32()).cast(pa.date32()),
        "fixed": pa.array([b"%4d" % i for i in range(count)], pa.binary(4)),
    }  # fmt: skip
    columns = {name: pc.if_else([i > 0 for i in range(count)], column, None) for name, column in columns.items()}
    dataset = lance.write_dataset(pa.table(columns), tmp_path / "t", max_rows_per_file=10)
    for name, column in columns.items():
        dataset.create_scalar_index(name, "BTREE")
        plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        plain = column.cast(pa.int32()) if pa.types.is_date32(column.type) else plain
        (build,) = (b for b in index_builds(dataset) if b.path == (name,))
        questions = values_of(build, column.type, plain.to_pylist())
        assert questions.uses_index(dataset), (name, literal(questions.values[0]))
        counts = questions.count(column)
        assert counts.sum() == count
        for number in range(len(questions)):
            answer = questions.ask(dataset, number, ["i8"])
            assert answer is not None
            assert (answer.wrong.num_rows, answer.twice.num_rows) == (0, 0)
            assert answer.counted == counts[number], (name, number)


@pytest.mark.parametrize("type_", [pa.time32("ms"), pa.time64("us"), pa.duration("us")], ids=str)
def test_an_index_of_a_type_without_literals_is_named(type_: pa.DataType) -> None:
    at = pa.array([1, 2, None], pa.int32() if type_ == pa.time32("ms") else pa.int64()).cast(type_)
    rows = pa.table({"id": [1, 2, 3], "at": at})
    dataset = lance.write_dataset(rows, "memory://at")
    dataset.create_scalar_index("at", "BTREE")
    (build,) = index_builds(dataset)
    why = _why_not(build, RowSchema(rows.schema, ("id",), ("id",)))
    assert why == f"Lance's SQL has no literals of {type_}"


@pytest.mark.parametrize(
    "items",
    [
        pa.array([0.1, -2.5, 3.0], pa.float32()),
        pa.array([0.1, -2.5, 3.0]),
        pa.array([1, -5, 7]),
        pa.array([1, -5, 7], pa.int32()).cast(pa.date32()),
        pa.array([1, -5, 7], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([Decimal("1.25"), Decimal("-0.50"), Decimal(3)], pa.decimal128(10, 2)),
    ],
    ids=lambda items: str(items.type),
)
def test_elements_of_lists_are_asked_for_by_the_index(items: pa.Array) -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), items)
    dataset = lance.write_dataset(pa.table({"n": [0, 1], "list": lists}), "memory://lists")
    dataset.create_scalar_index("list", "LABEL_LIST", name="labels")
    (build,) = index_builds(dataset)
    questions = values_of(build, lists.type, lists.cast(stored_type(lists.type)).to_pylist())
    assert questions.uses_index(dataset), literal(questions.values[0])
    for number, count in enumerate(questions.count(lists)):
        answer = questions.ask(dataset, number, ["n"])
        assert answer is not None
        assert (answer.wrong.num_rows, answer.counted) == (0, count)


# -- repair ------------------------------------------------------------------------------------------------------


def test_an_index_keeps_its_parameters(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    flat = pa.array(rng.standard_normal(400 * WIDTH).astype("f4"))
    rows = pa.table(
        {"n": range(400), "t": [f"alpha w{i}" for i in range(400)], "v": pa.FixedSizeListArray.from_arrays(flat, WIDTH)}
    )
    dataset = lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=100)
    dataset.create_scalar_index("n", IndexConfig("zonemap", {"rows_per_zone": 64}), name="zones")
    dataset.create_scalar_index(
        "n", IndexConfig("bloomfilter", {"number_of_items": 50, "probability": 0.01}), name="bloom"
    )
    dataset.create_scalar_index(
        "t", "INVERTED", name="words", with_position=True, stem=False, custom_stop_words=["alpha"],
        base_tokenizer="whitespace", max_token_length=None,
    )  # fmt: skip
    dataset.create_scalar_index("t", "INVERTED", name="code", analyzer="code", block_size=256)
    dataset.create_index("v", "IVF_PQ", name="pq", num_partitions=3, num_sub_vectors=4, num_bits=4, metric="cosine")
    dataset.create_index("v", "IVF_RQ", name="rq", num_partitions=2, num_bits=1, metric="dot")
    dataset.create_index("v", "IVF_HNSW_SQ", name="hnsw", num_partitions=2, m=7, ef_construction=33, max_level=4)

    def parameters() -> dict[str, Any]:
        opened = lance.dataset(tmp_path / "t")
        told: dict[str, Any] = {}
        for description in opened.describe_indices():
            statistics = opened.stats.index_stats(description.name)["indices"][0]
            kept = ("params", "num_partitions", "rows_per_zone", "number_of_items", "probability", "metric_type")
            said = {key: value for key, value in description.details.items() if key != "runtime_hints"}
            told[description.name] = (description.index_type, said, {k: statistics.get(k) for k in kept})
        return told

    before = parameters()
    ids = {i.name: i.segments[0].uuid for i in lance.dataset(tmp_path / "t").describe_indices()}
    for build in index_builds(dataset):
        build_again(lance.dataset(tmp_path / "t"), build)
    assert parameters() == before
    after = {i.name: i.segments[0].uuid for i in lance.dataset(tmp_path / "t").describe_indices()}
    assert all(after[name] != ids[name] for name in ids)
    assert before["words"][2]["params"]["custom_stop_words"] == ["alpha"]


def test_a_vector_that_no_index_takes_is_named_and_left_out(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 4))])
    table = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",))
    config = tmp_path / "lancewal.yaml"
    config.write_text(yaml.safe_dump({"table": {"uri": table.uri}}))
    for far, first in ((0.0, 0), (1e20, 100)):
        rows = [(id, [float(id), 1.0, 0.0, far if id == 150 else 0.5]) for id in range(first, first + 100)]
        table.generation(0, [Operation(Op.UPSERT, (id,), {"v": vector}) for id, vector in rows])
        table.round(MergeLimits(adopt_rows=1))
        if not first:
            table.dataset.create_index("v", "IVF_FLAT", num_partitions=1, metric="l2")
    done = CliRunner().invoke(app, ["index", "v_idx", "--config", str(config)])
    assert done.exit_code == 0, done.output
    assert "rebuilt over 199 rows" in done.stdout
    assert "id=150" in done.stdout
    query = {"column": "v", "q": [160.0, 1.0, 0.0, 0.5], "k": 1}
    asked = table.dataset.scanner(columns=["id"], nearest=query, fast_search=True)
    assert asked.to_table()["id"].to_pylist() == [160]
    assert found(verify(table.uri)) == {}
    table.close()


def test_a_compaction_in_between_refuses_it(table: AllIndexes, monkeypatch: pytest.MonkeyPatch) -> None:
    table.delete_some()

    def raced(dataset: Any, build: IndexBuild) -> None:
        table.compact()
        build_again(dataset, build)

    monkeypatch.setattr("lancewal_core.table.lance.table.build_again", raced)
    before = _segments(table, "num")
    with pytest.raises(RepairRefused, match="run the command again"):
        run(table, "num_idx")
    monkeypatch.undo()
    assert _segments(table, "num") == before
    run(table, "num_idx")
    assert table.wrong() == {}


def _segments(table: AllIndexes, column: str) -> list[str]:
    (description,) = (i for i in table.dataset.describe_indices() if i.name == f"{column}_idx")
    return [segment.uuid for segment in description.segments]


def _command() -> typer.Typer:
    made = typer.Typer()
    made.command()(with_options(command))
    return made


def test_segments_that_cover_no_row_tell_nothing(filled: Mapping[bool, AllIndexes], tmp_path: Path) -> None:
    """A user's `merge_insert` and compaction, with stable row ids."""
    table = filled[True].copied(tmp_path)
    run(table, "zone_idx")
    rows = pa.Table.from_pylist([{"id": id, **values(id, 50)} for (id,) in table.model if id % 3 == 0], SCHEMA)
    table.dataset.merge_insert("id").when_matched_update_all().use_index(False).execute(rows)
    table.dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    assert "its rows_per_zone: Lance's defaults are taken" in run(table, "zone_idx")
