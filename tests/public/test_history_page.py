"""The programs of docs/how-to/keep-history.md that need no Spark, and what AUTO CDC wants of a change feed.

``dev.py check-spark`` runs those for Spark.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pyarrow.compute as pc
import pytest

import lancewal
from tests.support.pipeline import SMALL, Pipeline
from tests.support.row_history import ADDRESS, by_records, differing, kept, section, unsteady_ms

RESERVED = re.compile(r"__start_at$|__end_at$|__spark_autocdc_", re.IGNORECASE)
"""Names that AUTO CDC keeps to itself."""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Pipeline]:
    """Merged, flushed and unmerged records; keys that are deleted and inserted again."""
    made = Pipeline(tmp_path, partitions=2, seed=3, record_ms=unsteady_ms)
    for count in (120, 90):
        made.produce(count, regions=3, ids=8)
        made.merge_all()
    made.produce(60, regions=3, ids=8)
    made.ingest()
    made.hand_over()
    made.produce(40, regions=3, ids=8)
    made.ingest()
    yield made
    made.close()


def test_the_history_by_duckdb_is_that_of_the_records(made: Pipeline) -> None:
    program = section("DuckDB")
    assert ADDRESS in program
    names: dict[str, Any] = {}
    exec(compile(program.replace(ADDRESS, made.uri), "keep-history.md, DuckDB", "exec"), names)
    expected = by_records(made)
    assert list(differing(kept(names["history"]), expected)) == []
    versions = [pair for rows in expected.values() for pair in pairwise(rows)]
    assert any(older["valid_to"] != newer["valid_from"] for older, newer in versions), "no key was inserted again"
    assert any(row["valid_to"] and row["valid_to"] < row["valid_from"] for rows in expected.values() for row in rows)


@pytest.mark.parametrize("mode", ["net", "all"])
def test_a_feed_has_what_auto_cdc_wants(made: Pipeline, mode: Literal["net", "all"]) -> None:
    """See ``ScdBatchValidator.scala``, ``Scd2BatchProcessor.scala`` and ``AutoCdcReservedNames.scala`` of apache/spark, in
    ``sql/pipelines/src/main/scala/org/apache/spark/sql/pipelines/autocdc``: ``validateMicrobatch`` refuses nulls in keys and
    sequence, ``orderChronologicallyPerKeyWindow`` needs a sequence once in each key, and names of its own are refused."""
    table = lancewal.open_table(made.uri)
    middle = str(table.receipt())
    made.produce(60, regions=3, ids=8)
    made.merge_all()
    last: dict[tuple[str, int], int] = {}
    for start, end in (("earliest", middle), (middle, "now")):
        feed = table.changes(start, end, mode).to_arrow()
        wanted = ["region", "id", "_sequence"]
        assert [(feed.schema.field(name).nullable, feed[name].null_count) for name in wanted] == [(False, 0)] * 3
        assert [name for name in feed.column_names if RESERVED.match(name)] == []
        events = feed.filter(pc.field("_change_type") != "update_preimage").select(wanted)
        assert events.num_rows > 15
        for region, id, sequence in zip(*(column.to_pylist() for column in events.columns), strict=True):
            assert last.get((region, id), -1) < sequence
            last[region, id] = sequence


def test_the_pipeline_leaves_out_what_a_feed_adds(made: Pipeline) -> None:
    (flow,) = [
        node
        for node in ast.walk(ast.parse(section("AUTO CDC")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "create_auto_cdc_flow"
    ]
    (left_out,) = [
        eval(compile(ast.Expression(k.value), "", "eval")) for k in flow.keywords if k.arg == "except_column_list"
    ]
    feed = lancewal.open_table(made.uri).changes("earliest", mode="all").to_arrow()
    assert [*SMALL.names, *left_out] == feed.column_names
