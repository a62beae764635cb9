"""Many queries on Spark, by the program of the page about vectors: each finds what one search for it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lancewal
from tests.public.test_public_names import programs
from tests.public.test_search_page import ADDRESS, PAGES, SPARK
from tests.support.pipeline import KEY, Pipeline
from tests.support.spark import LocalSpark

pytestmark = pytest.mark.spark


def test_each_query_finds_its_nearest(spark: LocalSpark, tmp_path: Path) -> None:
    made = Pipeline(tmp_path, pa.schema([*KEY, ("embedding", pa.list_(pa.float32(), 4))]))
    vectors = np.random.default_rng(8).random((30, 4)).astype("f4").tolist()
    for id, vector in enumerate(vectors):
        made.upsert("north", id, embedding=vector)
        if id == 19:
            made.merge_all()
    made.ingest()
    code = programs((PAGES / "search-by-vectors.md").read_text(encoding="utf-8"))
    (makes,) = [program for program in code if "def nearest" in program]
    (asks,) = [program for program in code if program.startswith(SPARK)]
    names: dict[str, Any] = {"lancewal": lancewal, "notices": lancewal.open_table(made.uri)}
    exec(makes.replace(ADDRESS, made.uri), names)
    queries = spark.session.createDataFrame([(vector,) for vector in vectors[15:25]], "embedding array<float>")
    names["queries"] = queries.repartition(2)
    made.delete("north", 20)
    made.ingest()  # behind the receipt that all tasks read at
    rows = eval(asks.splitlines()[1].removesuffix(".show()"), names).collect()
    found = [row.id for row in rows if row["_distance"] == 0]
    assert sorted(found) == [*range(15, 25)]
    assert len(rows) == 30
    made.close()
