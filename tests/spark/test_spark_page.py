"""Every program on the page for Spark users runs as it stands, one after the other.

That for Spark Connect is run by ``test_spark_programs``, which has a server.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.public.test_public_names import programs
from tests.support.pipeline import KEY, Pipeline
from tests.support.spark import LocalSpark

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "read-with-spark.md"
ADDRESS, SERVER = "s3://bucket/trips", "sc://spark.example:15002"
COLUMNS = [("trip", pa.int64()), ("status", pa.string()), ("fare", pa.decimal128(10, 2))]


def made_table(folder: Path) -> Pipeline:
    made = Pipeline(folder, pa.schema([*KEY, *COLUMNS]))
    for id in range(20):
        made.upsert("north", id, trip=id, status="open" if id % 4 else "paid", fare=Decimal(id))
        if id == 9:
            made.merge_all()
    made.ingest()
    return made


def run_program(number: int, program: str, names: dict[str, object]) -> None:
    exec(compile(program, f"{PAGE.name}, program {number + 1}", "exec"), names)


def test_the_programs_of_the_page_run(spark: LocalSpark, tmp_path: Path) -> None:
    made = made_table(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    partition = next(p for p in range(3) if made.messages(p))
    token = f'("{made.contract.topic}", {partition}, 3)'
    texts = {ADDRESS: made.uri, '("trips", 3, 1841)': token, "/checkpoints/trips": str(tmp_path / "checkpoint")}
    assert all(text in page for text in texts)
    names: dict[str, object] = {}
    code = [program for program in programs(page) if SERVER not in program]
    for number, program in enumerate(code):
        for text, there in texts.items():
            program = program.replace(text, there)
        run_program(number, program, names)
    assert names["spark"] is spark.session
    assert len(code) >= 8
    fares = made.oracle.values()
    assert names["sums"] == {
        status: sum(r["fare"] or 0 for r in fares if r["status"] == status) for status in ("open", "paid")
    }
    (view,) = [line for line in page.splitlines() if line.startswith("CREATE OR REPLACE TEMPORARY VIEW")]
    spark.session.sql(view.replace(ADDRESS, made.uri).rstrip(";"))
    assert spark.session.sql("SELECT count(*), count(trip) FROM trips").first() == (20, 20)
    made.close()
