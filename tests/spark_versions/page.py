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
values.
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
    names = list(dict.fromkeys(name for run in runs for name in run.found))
    lines = [
        _HEAD,
        f"| read | {' | '.join(f'{run.version} {run.way}' for run in runs)} |",
        "|---" * (len(runs) + 1) + "|",
    ]
    lines += [f"| {name} | {' | '.join(_cell(run, name) for run in runs)} |" for name in names]
    return "\n".join(lines) + "\n"


def _cell(run: Run, name: str) -> str:
    wrong = run.found.get(name, "not made")
    return wrong.replace("|", "/")[:120] or "right"
