"""The notebook for Python users runs as it stands, cell by cell, on a table that is not all merged.

By ``exec`` and not by a kernel: one of Jupyter brings a dozen packages, starts a process and talks to it over sockets, and
of a cell without magic does the same.  What a cell ends with is shown as Jupyter shows it.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.public.test_public_names import private_imports
from tests.support.pipeline import KEY, Pipeline

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "read-with-python.ipynb"


def cells(kind: str) -> list[str]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def run(source: str, names: dict[str, Any], where: str) -> str:
    """What is shown of the cell."""
    tree = ast.parse(source, where)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, where, "exec"), names)
        return ""
    exec(compile(ast.Module(tree.body[:-1], []), where, "exec"), names)
    shown = eval(compile(ast.Expression(last.value), where, "eval"), names)
    return str(getattr(shown, "_repr_html_", lambda: repr(shown))())


def test_each_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = Pipeline(tmp_path, pa.schema([*KEY, ("status", pa.string()), ("amount", pa.float64())]))
    Path("orders-table").symlink_to(made.uri)
    for id in range(20):
        made.upsert("south" if id % 2 else "north", id, status="open" if id % 4 else "paid", amount=1.0 + id)
        if id == 9:
            made.merge_all()
    made.upsert("north", 4, status="paid", amount=100.0)
    made.delete("north", 2)
    made.upsert("south", 4, status="open", amount=7.0)
    made.ingest()
    names: dict[str, Any] = {}
    shown = [run(cell, names, f"cell {number + 1}") for number, cell in enumerate(cells("code"))]
    rows = list(made.oracle.values())
    still_open = [row for row in rows if row["status"] == "open"]
    assert names["total"] == sum(row["amount"] for row in rows)
    assert (names["now"], names["merged"], names["open_orders"]) == (20, 10, len(still_open))
    assert str(names["kept"]).startswith("lw1.")
    assert shown[2].count("<tr") - 1 == sum(row["amount"] > 10 for row in still_open)
    assert all(shown)
    made.close()


def test_it_is_stored_without_what_a_run_leaves() -> None:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in found["cells"]}) == len(found["cells"])
    for cell in found["cells"]:
        left: dict[str, Any] = {"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {}
        assert {name: cell[name] for name in cell.keys() - {"cell_type", "id", "metadata", "source"}} == left


def test_it_uses_public_names_alone() -> None:
    assert list(private_imports("".join(f"```python\n{cell}\n```\n" for cell in cells("code")))) == []
