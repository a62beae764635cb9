"""Every program on the pages about searches runs as it stands, on a table that is not all merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.public.test_public_names import programs
from tests.support.pipeline import KEY, Pipeline

PAGES = Path(__file__).resolve().parents[2] / "docs" / "how-to"
ADDRESS = "s3://bucket/notices"
ELSEWHERE = ("import lance\n", "# queries: a DataFrame")
"""The program that makes an index is about many rows, and what Spark runs has its own."""


def run(page: str, made: Pipeline) -> tuple[dict[str, Any], int]:
    """What its programs leave behind, and how many ran."""
    names: dict[str, Any] = {}
    text = (PAGES / page).read_text(encoding="utf-8")
    code = [program for program in programs(text) if not program.startswith(ELSEWHERE)]
    for number, program in enumerate(code):
        exec(compile(program.replace(ADDRESS, made.uri), f"{page}, program {number + 1}", "exec"), names)
    return names, len(code)


def test_the_programs_of_the_page_run(tmp_path: Path) -> None:
    more = [("title", pa.string()), ("price", pa.float64()), ("embedding", pa.list_(pa.float32(), 4))]
    made = Pipeline(tmp_path, pa.schema([*KEY, *more]))
    vectors = np.random.default_rng(5).random((20, 4)).astype("f4").tolist()
    for id in range(20):
        made.upsert("north", id, title=f"notice {id}", price=10.0 + id, embedding=vectors[id])
        if id == 9:
            made.merge_all()
    made.ingest()
    names, count = run("search-by-vectors.md", made)
    apart = ((np.array(vectors) - [0.1, 0.9, 0.0, 0.3]) ** 2).sum(axis=1)
    assert names["found"].to_arrow()["id"].to_pylist() == np.argsort(apart)[:5].tolist()
    assert (names["found"].coverage.fresh_rows, names["found"].coverage.flat_rows) == (10, 10)
    batch = pa.RecordBatch.from_pylist([{"embedding": vectors[4]}, {"embedding": vectors[11]}])
    near = pa.Table.from_batches([*names["nearest"]([batch])])
    assert near["id"].to_pylist()[::3] == [4, 11]
    assert near["query_index"].to_pylist() == [0, 0, 0, 1, 1, 1]
    assert count == 5
    made.close()


def test_the_programs_of_the_page_about_texts_run(tmp_path: Path) -> None:
    more = [
        ("title", pa.string()),
        ("body", pa.string()),
        ("price", pa.float64()),
        ("embedding", pa.list_(pa.float32(), 4)),
    ]
    made = Pipeline(tmp_path, pa.schema([*KEY, *more]))
    titles = ["flood warning", "river floods", "drill: flood", "a calm river", "flooded river bank"]
    for id, title in enumerate(titles):
        made.upsert("north", id, title=title, body="warnings", price=15.0 + 2 * id, embedding=[0.1, 0.9, 0.0, id])
        if id == 1:
            made.merge_all()
    made.ingest()
    names, count = run("search-by-text.md", made)
    assert names["found"].to_arrow()["id"].to_pylist()[0] == 0
    assert sorted(names["found"].to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4]
    lengths = [len(title) for title in names["short"].to_arrow()["title"].to_pylist()]
    assert (len(lengths), lengths) == (5, sorted(lengths))
    assert sorted(names["cheap"]["id"].to_pylist()) == [0, 1, 2]
    assert sorted(names["misspelt"].to_arrow()["id"].to_pylist()) == [0, 1, 2, 4]
    assert count == 6
    made.close()
