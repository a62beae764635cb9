"""Every program on the pages about searches runs as it stands, on a table that is not all merged."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

import lancewal
from lancewal_core.cli import program as cli
from lancewal_core.rows.column_types import parse_type
from lancewal_reader.search import merged
from tests.public.test_commands_as_written import written
from tests.public.test_public_names import programs
from tests.support.pipeline import KEY, Pipeline

PAGES = Path(__file__).resolve().parents[2] / "docs" / "how-to"
ADDRESS = "s3://bucket/notices"
SPARK, INDEX = "# queries: a DataFrame", "import lance\n"
"""How programs begin that have tests of their own: ``tests/spark/test_search_on_spark.py``, and those about an index below."""


def described(page: str) -> pa.Schema:
    """The columns of the table whose settings a page shows: its programs run on no other."""
    (found,) = re.findall(r"^```yaml\n(.*?)^```", (PAGES / page).read_text(encoding="utf-8"), re.M | re.S)
    table = yaml.safe_load(found)["table"]
    keys = table["primary_key"]
    return pa.schema([pa.field(name, parse_type(of), name not in keys) for name, of in table["columns"].items()])


def run(page: str, made: Pipeline) -> tuple[dict[str, Any], int]:
    """What its programs leave behind, and how many ran."""
    names: dict[str, Any] = {}
    text = (PAGES / page).read_text(encoding="utf-8")
    code = [program for program in programs(text) if not program.startswith((SPARK, INDEX))]
    for number, program in enumerate(code):
        exec(compile(program.replace(ADDRESS, made.uri), f"{page}, program {number + 1}", "exec"), names)
    return names, len(code)


def block(page: str, language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", (PAGES / page).read_text(encoding="utf-8"), re.M | re.S)
    return str(found)


def commands(made: Pipeline, page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """What each ``lancewal search`` of a page says, on stdout and on stderr."""
    (folder / "one.json").write_text("[0.1, 0.9, 0.0, 0.3]")
    said = []
    for line in written((PAGES / page).read_text(encoding="utf-8")):
        if line.startswith("search "):
            words = line.replace(ADDRESS, made.uri).replace("one.json", str(folder / "one.json"))
            assert cli.run(shlex.split(words)) == 0, line
            shown = capsys.readouterr()
            said.append((shown.out, shown.err))
    return said


def test_the_programs_of_the_page_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Pipeline(tmp_path, described("search-by-vectors.md"))
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
    (by_filter, exact) = commands(made, "search-by-vectors.md", tmp_path, capsys)
    assert by_filter[1].startswith(
        "searched: 0 rows by an index, 10 one by one, 0 unmerged; 0 merged rows hidden\nreceipt: lw1"
    )
    assert by_filter[0].splitlines()[0].split() == ["id", "title", "_distance"]
    assert json.loads(exact[0].splitlines()[0])["id"] == np.argmin(apart)
    made.close()


def test_the_record_of_the_page_is_a_row_of_the_table_of_the_page(tmp_path: Path) -> None:
    settings = tmp_path / "lancewal.yaml"
    settings.write_text(block("search-by-vectors.md", "yaml"))
    assert lancewal.load_settings(settings).table.primary_key == ("region", "id")
    record = json.loads(block("search-by-vectors.md", "json"))
    made = Pipeline(tmp_path, described("search-by-vectors.md"))
    made.upsert(**record)
    made.ingest()
    (row,) = (
        lancewal.open_table(made.uri)
        .search(record["embedding"], "flood", text_columns=["title"])
        .to_arrow()
        .to_pylist()
    )
    assert {name: row[name] for name in record} == {**record, "embedding": pytest.approx(record["embedding"])}
    made.close()


def test_indexes_are_made_as_the_pages_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of vectors as long as a model's; a search asks them, also of a table as small as this."""
    monkeypatch.setattr(merged, "FLAT_ROWS_MAX", 0)
    made = Pipeline(tmp_path, pa.schema([*KEY, ("title", pa.string()), ("embedding", pa.list_(pa.float32(), 64))]))
    for id, vector in enumerate(np.random.default_rng(6).random((300, 64)).astype("f4").tolist()):
        made.upsert("north", id, title=f"flood number n{id}", embedding=vector)
    made.merge_all()
    for page in ("search-by-vectors.md", "search-by-text.md"):
        (program,) = [p for p in programs((PAGES / page).read_text(encoding="utf-8")) if p.startswith(INDEX)]
        exec(compile(program.replace(ADDRESS, made.uri).replace("=256", "=2"), page, "exec"), {})
    made.upsert("north", 7, title="drought")
    made.ingest()
    opened = lancewal.open_table(made.uri)
    near, told = opened.search([0.5] * 64), opened.search(text=lancewal.Phrase("number n7"), limit=300)
    assert (near.coverage.indexed_rows, near.coverage.masked_rows, near.coverage.fresh_rows) == (300, 1, 1)
    assert "(IVF_RQ)" in (near.coverage.approximate or "")
    assert (told.coverage.indexed_rows, told.coverage.approximate, told.to_arrow().num_rows) == (300, None, 0)
    made.close()


def test_the_programs_of_the_page_about_texts_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Pipeline(tmp_path, described("search-by-vectors.md"))
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
    (by_words, by_both) = commands(made, "search-by-text.md", tmp_path, capsys)
    assert by_words[0].splitlines()[0].split() == ["id", "title", "_score"]
    assert by_both[0].splitlines()[0].split()[-3:] == ["_distance", "_score", "_relevance_score"]
    assert by_both[1].startswith("searched: 0 rows by an index, 2 one by one, 3 unmerged; 0 merged rows hidden\n")
    made.close()
