"""What ``dev.py check-spark`` asks and says, without a Spark: DuckDB answers the reads, and the page has what went wrong."""

from __future__ import annotations

import random

import pyarrow as pa

from tests.spark_versions.__main__ import by_duckdb
from tests.spark_versions.environments import PACKAGES, ROOT, reader_needs
from tests.spark_versions.history import RECIPES, programs
from tests.spark_versions.page import HISTORY, PAGE, Run, page
from tests.spark_versions.reads import READS, REFUSED
from tests.support.pipeline import EVERY_TYPE, random_value


def test_duckdb_answers_every_read() -> None:
    rng = random.Random(1)
    rows = [{f.name: random_value(rng, f.type, 0 if not f.nullable else 0.3) for f in EVERY_TYPE} for _ in range(200)]
    table = pa.Table.from_pylist(rows, EVERY_TYPE)
    for read in READS:
        assert by_duckdb(read, table), read.name
    names = [read.name for read in READS] + [name for name, _, _ in REFUSED]
    assert len(set(names)) == len(names)


def test_the_page_says_what_was_wrong() -> None:
    runs = [
        Run("4.0.5", "local", {"all columns": "", "count(*)": "3 rows | not 4"}),
        Run("4.3.0", "local", {"all columns": ""}),
    ]
    assert [run.wrong for run in runs] == [{"count(*)": "3 rows | not 4"}, {}]
    lines = page(runs).splitlines()
    assert "| read | 4.0.5 local | 4.3.0 local |" in lines
    assert "| all columns | right | right |" in lines
    assert "| count(*) | 3 rows / not 4 | not made |" in lines
    assert "| a recipe | 4.1.4 | right |" in page([*runs, Run("4.1.4", HISTORY, {"a recipe": ""})]).splitlines()


def test_the_page_about_histories_has_the_recipes_that_are_run() -> None:
    start, recipes, statements = programs("/a-table", "a.jar", {recipe: f"/{n}" for n, recipe in enumerate(RECIPES)})
    assert 'config("spark.jars", "a.jar")' in start
    assert [compile(text, recipe, "exec") is not None for recipe, text in recipes.items()] == [True] * 3
    assert statements[1] == "ALTER TABLE delta.`/1` ADD COLUMNS (note STRING)"


def test_an_environment_has_what_the_reader_needs_and_no_spark_of_its_own() -> None:
    needs = [need.split("=")[0].split(">")[0] for need in reader_needs()]
    assert {"pylance", "pyarrow", "pandas"} <= set(needs)
    assert not [need for need in needs if "spark" in need]
    assert all((ROOT / name).is_dir() for name in PACKAGES)
    assert PAGE.exists()
