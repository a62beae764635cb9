"""The page of what the runs came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "which-sparks-work.md"
_HEAD = """# Which Sparks work

`python3 dev.py check-spark` writes this page. The oldest and the newest PySpark that lancewal supports read one table
with every column type, merged and unmerged rows. Each PySpark comes from PyPI, in its own environment, and reads in
three ways: in `local` mode, on a standalone cluster of two workers, and through Spark Connect. *right* means that the
result equals DuckDB's, row by row. A load of every type, with times of the years 1 to 9999, is compared with the loaded
values. A condition is *offered* if `spark.sql.python.filterPushdown.enabled` is set, so that Spark offers it to the
source. An unknown option, a refused filter and a credential are right if the error says so.
"""
HISTORY = "history"
"""The way of the runs that have a table of their own."""
_HISTORY_HEAD = """
## History

The recipes of [Keep history](../how-to/keep-history.md) run as they stand on the page, in `local` mode. The expected rows
and versions come from the produced records alone. For Delta (4.4.0, on Spark 4.1) a process is killed after each MERGE,
before Spark commits the batch. No table format with MERGE has a release for Spark 4.3, so AUTO CDC gets as far as its target.

| recipe | PySpark | result |
|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Run:
    """``found``: of each read what is wrong, nothing where it passed."""

    version: str
    way: str
    found: dict[str, str]

    @property
    def wrong(self) -> dict[str, str]:
        return {name: wrong for name, wrong in self.found.items() if wrong}


def page(runs: Sequence[Run]) -> str:
    histories = [run for run in runs if run.way == HISTORY]
    runs = [run for run in runs if run.way != HISTORY]
    names = list(dict.fromkeys(name for run in runs for name in run.found))
    lines = [
        _HEAD,
        f"| read | {' | '.join(f'{run.version} {run.way}' for run in runs)} |",
        "|---" * (len(runs) + 1) + "|",
    ]
    lines += [f"| {name} | {' | '.join(_cell(run, name) for run in runs)} |" for name in names]
    recipes = [f"| {name} | {run.version} | {_cell(run, name)} |" for run in histories for name in run.found]
    return "\n".join(lines) + "\n" + _HISTORY_HEAD + "\n".join(recipes) + "\n"


def _cell(run: Run, name: str) -> str:
    wrong = run.found.get(name, "not made")
    return wrong.replace("|", "/")[:120] or "right"
