"""Every program on the pages for Python users runs as it stands, one after the other, on a table that is not all merged."""

from __future__ import annotations

from pathlib import Path

from tests.public.test_public_names import programs
from tests.public.test_search_page import described
from tests.support.pipeline import Pipeline

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "read-with-python.md"
ADDRESS = "s3://bucket/orders"


def test_the_programs_of_the_page_run(tmp_path: Path) -> None:
    made = Pipeline(tmp_path, described(PAGE.name))
    for id in range(20):
        made.upsert("north", id, status="open" if id % 2 else "paid", amount=5.0 + id)
        if id == 9:
            made.merge_all()
    made.ingest()
    page = PAGE.read_text(encoding="utf-8")
    assert ADDRESS in page
    code = programs(page)
    names: dict[str, object] = {}
    for number, program in enumerate(code):
        exec(compile(program.replace(ADDRESS, made.uri), f"{PAGE.name}, program {number + 1}", "exec"), names)
    assert (names["total"], names["before"], names["open_orders"], names["everything"]) == (290.0, 20, 10, 20)
    assert len(code) >= 8
    made.close()


def test_the_programs_about_consistency_run(tmp_path: Path) -> None:
    """They assert by themselves what they say."""
    made = Pipeline(tmp_path)
    made.produce(60)
    made.merge_all()
    made.produce(30)
    made.ingest()
    page = PAGE.parents[1] / "reference" / "consistency.md"
    code = programs(page.read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    for number, program in enumerate(code):
        exec(compile(program.replace(ADDRESS, made.uri), f"{page.name}, program {number + 1}", "exec"), names)
    assert (len(code), str(names["kept"])[:4]) == (6, "lw1.")
    made.close()
