"""Columns of the types that the first release does not have, all at once: on every way that rows take, against a dict."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import time, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest

from lancewal_audit.verify.report import report_text
from lancewal_core.errors import InvalidInput
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.tasks import in_place
from lancewal_reader.table import open_table
from tests.audit.repair.test_segment import damage, feed, middle, repair
from tests.audit.verify.test_columns_changed import verify
from tests.flusher.tasks.test_strategies import columns_where_possible
from tests.reader.changes.test_net import applied
from tests.reader.commands.test_commands import read
from tests.support.flusher_tables import COMBINE, OPEN_ROWS
from tests.support.pipeline import KEY, LATER_TYPES, Pipeline, Row, as_json, by_key
from tests.support.spark import LocalSpark

LIMITS = [OPEN_ROWS, COMBINE, MergeLimits(adopt_rows=1, in_place_rows=1), MergeLimits()]
ENDS: list[Row] = [
    {"fix": b"\0\0\0", "uid": UUID(int=0), "t32": time(0), "t64": time(0), "took": timedelta(0), "ls": "", "lb": b""},
    {
        "fix": b"\xff\xff\xff",
        "uid": UUID(int=2**128 - 1),
        "t32": time(23, 59, 59, 999_000),
        "t64": time(23, 59, 59, 999_999),
        "took": timedelta(microseconds=2**62),
        "ls": "\0😀" * 30_000,
        "lb": bytes(range(256)) * 500,
        "all": [],
        "one": {"s": None, "b": []},
    },
    {"all": [None, {"f": None, "t": None, "d": None}], "one": {"s": "", "b": [None, b""]}},
    {"map": [], "maps": [], "in": {"m": None, "x": None}},
    {"map": [("", None)], "maps": [None, [], [("a", None), ("b", [])]], "in": {"m": [], "x": 1}},
    {
        "map": [("b", 2**63 - 1), ("a", -(2**63)), ("\0😀", 0)],
        "maps": [[("x", [("y", -0.0), ("z", 1.5)])]],
        "in": {"m": [("k", {"t": time(23, 59, 59, 999_999), "n": None}), ("l", None)], "x": None},
    },
]
"""Values at the ends of their types."""


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Pipeline]:
    """Rows in the table, in flushes and in the log, with patches of each other's rows."""
    made = Pipeline(tmp_path, LATER_TYPES, partitions=2, seed=11, seal_rows=10_000)
    for number, row in enumerate(ENDS):
        made.upsert("ends", number, **row)
    made.produce(150)
    made.merge_all()
    made.produce(120)
    made.ingest()
    made.hand_over()
    made.produce(60)
    made.ingest()
    yield made
    made.close()


def in_spark(row: Row, columns: pa.Schema = LATER_TYPES) -> Row:
    """A row with the values that Spark has for it."""

    def value(of: Any, type_: pa.DataType) -> Any:
        if of is None:
            return None
        if pa.types.is_map(type_):
            return [(key, value(item, type_.item_type)) for key, item in of]
        if pa.types.is_list(type_):
            return [value(item, type_.value_type) for item in of]
        if pa.types.is_struct(type_):
            return {member.name: value(of[member.name], member.type) for member in type_}
        if pa.types.is_time(type_):
            return of.isoformat({"s": "seconds", "ms": "milliseconds", "us": "microseconds"}[type_.unit])
        return str(of) if type_ == pa.uuid() else of

    return {name: value(row[name], columns.field(name).type) for name in columns.names}


def check(table: Pipeline) -> None:
    rows = open_table(table.uri).to_arrow()
    assert rows.schema.equals(table.columns)
    assert by_key(rows) == table.oracle


def test_every_way_of_rows(table: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads, changes, merges of each kind, compaction, and ``verify`` after each."""
    monkeypatch.setattr(in_place, "least", columns_where_possible)
    rng = random.Random(3)
    at, before = str(open_table(table.uri).receipt()), dict(table.oracle)
    for limits in [*LIMITS, *LIMITS]:
        check(table)
        report = verify(table, monkeypatch, "both")
        assert report.counts == {}, report_text(report)
        assert report.rows_read == len(table.oracle)
        changed: list[Row] = open_table(table.uri).changes(at, "now").to_arrow().to_pylist()
        assert applied(before, changed, table.columns.names) == table.oracle
        table.merge_all(limits)
        assert by_key(lance.dataset(table.uri).to_table()) == table.oracle
        if rng.random() < 0.4:
            lance.dataset(table.uri).optimize.compact_files()
        table.produce(70)
        table.ingest()
    table.merge_all()
    wrong: Any = lance.dataset(table.uri)
    wrong.update({"uid": "X'00000000000000000000000000000007'"}, where="id = 2 AND region = 'ends'")
    assert verify(table, monkeypatch, "both").counts["differs"] == 1


def test_a_lost_segment_comes_from_the_topic_again(table: Pipeline) -> None:
    feed(table, 6)
    segment = middle(table)
    damage(segment, "lost")
    repair(table, segment)
    table.replace_worker()
    table.merge_all()
    check(table)


def test_lancewal_read_shows_what_producers_write(table: Pipeline) -> None:
    found = [json.loads(line) for line in read(table, "--output", "jsonl").stdout.splitlines()]
    shown = {(row["region"], row["id"]): row for row in found}
    assert shown == {
        key: {name: as_json(value, table.columns.field(name).type) for name, value in row.items()}
        for key, row in table.oracle.items()
    }


def test_columns_are_added_renamed_and_dropped_while_rows_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Pipeline(tmp_path, pa.schema([*KEY, ("a", pa.int64())]), partitions=2, seed=5, on_bad_record="ignore")
    made.produce(60)
    made.merge_all()
    made.produce(30)
    made.ingest()
    made.change_columns({}, {"m": "map<string, list<time32[s]>>", "u": "uuid", "d": "struct<x: duration[s]>"})
    for _ in range(2):
        made.produce(60)
        made.ingest()
        assert by_key(open_table(made.uri).to_arrow()) == made.oracle
    made.hand_over()
    made.change_columns({"m": "n", "a": None})
    made.produce(60)
    for _ in range(2):
        made.ingest()
        assert by_key(open_table(made.uri).to_arrow()) == made.oracle
        report = verify(made, monkeypatch, "both")
        assert report.counts == {}, report_text(report)
        made.merge_all()
    assert by_key(lance.dataset(made.uri).to_table()) == made.oracle
    assert made.columns.field("n").type == pa.map_(pa.string(), pa.list_(pa.time32("s")))
    made.close()


@pytest.mark.parametrize(
    ("condition", "passes"),
    [
        ("uid = X'ffffffffffffffffffffffffffffffff'", lambda row: row["uid"] == UUID(int=2**128 - 1)),
        ("uid IN (X'00000000000000000000000000000000')", lambda row: row["uid"] == UUID(int=0)),
        ("fix > X'7fffff'", lambda row: row["fix"] is not None and row["fix"] > b"\x7f\xff\xff"),
        ("lb = X''", lambda row: row["lb"] == b""),
        ("map IS NULL", lambda row: row["map"] is None),
        ("ls LIKE 'a%'", lambda row: (row["ls"] or "").startswith("a")),
        ("ls = 'a''b' OR t64 IS NULL", lambda row: row["ls"] == "a'b" or row["t64"] is None),
        ("took IS NOT NULL AND t32 = t32", lambda row: row["took"] is not None and row["t32"] is not None),
    ],
    ids=str,
)
def test_conditions(table: Pipeline, condition: str, passes: Any) -> None:
    expected = {key: row for key, row in table.oracle.items() if passes(row)}
    assert 0 < len(expected) < len(table.oracle)
    assert by_key(open_table(table.uri).to_arrow(filter=condition)) == expected


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        (
            "uid = '00000000-0000-0000-0000-000000000000'",
            r"compares exactly with `uid`, whose type is uuid\..*`uid` = X'123e4567",
        ),
        ("fix = 'abc'", r"compares exactly with `fix`.*`fix` = X'000000'"),
        ("t64 = '12:00:00'", "Lance has no literals of this type. Compare the column with another one, or by IS NULL"),
        ("took > 5", "Lance has no literals of this type"),
        ("map = 'a'", "Lance compares no part of a map"),
    ],
)
def test_a_literal_of_another_type_is_refused(table: Pipeline, condition: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        open_table(table.uri).to_arrow(filter=condition)


@pytest.mark.spark
def test_spark(spark: LocalSpark, table: Pipeline) -> None:
    kinds = {field.name: field.dataType.simpleString() for field in spark.read(table.uri).schema}
    assert kinds == {
        "region": "string",
        "id": "bigint",
        "fix": "binary",
        "uid": "string",
        "t32": "string",
        "t64": "string",
        "took": "interval day to second",
        "ls": "string",
        "lb": "binary",
        "all": "array<struct<f:binary,t:string,d:interval day to second>>",
        "one": "struct<s:string,b:array<binary>>",
        "map": "map<string,bigint>",
        "maps": "array<map<string,map<string,double>>>",
        "in": "struct<m:map<string,struct<t:string,n:tinyint>>,x:tinyint>",
    }
    assert by_key(spark.read(table.uri).toArrow()) == {key: in_spark(row) for key, row in table.oracle.items()}
    rows = spark.read(table.uri, columns="uid,took,t64").where("uid IS NOT NULL").collect()
    found = sorted((row.uid, row.took, row.t64) for row in rows if row.took is not None and row.t64 is not None)
    shown = [in_spark(row) for row in table.oracle.values()]
    assert found == sorted(
        (row["uid"], row["took"], row["t64"]) for row in shown if None not in (row["uid"], row["took"], row["t64"])
    )
