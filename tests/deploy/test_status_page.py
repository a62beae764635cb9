"""docs/reference/status.md lists the fields of the status, and the causes, as they are declared.

``python -m tests.deploy.test_status_page`` writes the page's tables.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from lancewal_core.process.status.causes import Cause
from lancewal_core.process.status.diagnose import Diagnosis
from lancewal_core.process.status.facts import Rejections
from lancewal_core.process.status.report import CutStatus, MergeDone, PartitionStatus, SubscriptionStatus, TableStatus
from lancewal_core.process.status.widenings import OpenWidening

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "status.md"
SHOWN: dict[str, type] = {
    "## The object": TableStatus,
    "## `partitions`": PartitionStatus,
    "## `diagnosis`": Diagnosis,
    "## `rejections`": Rejections,
    "## `widenings`": OpenWidening,
    "## `subscriptions`": SubscriptionStatus,
    "## `cuts`": CutStatus,
    "## `recent_merges`": MergeDone,
}
CAUSES_BELOW = "## Causes"


def meanings(shown: type) -> dict[str, str]:
    """What stands under each field, in one line."""
    (made,) = ast.parse(inspect.getsource(shown)).body
    assert isinstance(made, ast.ClassDef)
    found: dict[str, str] = {}
    for at, said in enumerate(made.body):
        if isinstance(said, ast.AnnAssign) and isinstance(said.target, ast.Name):
            following = made.body[at + 1] if at + 1 < len(made.body) else None
            text = following.value if isinstance(following, ast.Expr) else None
            found[said.target.id] = " ".join(str(text.value).split()) if isinstance(text, ast.Constant) else ""
    return found


def table_of(heading: str) -> list[str]:
    if heading == CAUSES_BELOW:
        rows = [f"| {c.step} | `{c.kind}` | {c.meaning} | {c.seen} |" for c in Cause]
        return ["| step | `kind` | what it is | seen from |", "|---|---|---|---|", *rows]
    found = meanings(SHOWN[heading])
    return [
        "| field | meaning |",
        "|---|---|",
        *(f"| `{name}` | {text.replace('``', '`')} |" for name, text in found.items()),
    ]


def made(page: str) -> str:
    """The page with a table under each heading, behind what else stands there."""
    lines = page.splitlines()
    for heading in (*SHOWN, CAUSES_BELOW):
        begin = lines.index(heading) + 1
        end = next((i for i in range(begin, len(lines)) if lines[i].startswith("## ")), len(lines))
        text = [said for said in lines[begin:end] if said and not said.startswith("|")]
        lines[begin:end] = ["", *text, *([""] if text else []), *table_of(heading), *([""] if end < len(lines) else [])]
    return "\n".join(lines) + "\n"


def test_the_page_has_fields_and_causes_as_they_are_declared() -> None:
    assert PAGE.read_text() == made(PAGE.read_text())


@pytest.mark.parametrize("shown", SHOWN.values(), ids=lambda shown: shown.__name__)
def test_every_field_says_what_it_means(shown: type) -> None:
    found = meanings(shown)
    assert list(found) == [field.name for field in fields(shown)]
    assert [name for name, text in found.items() if not text] == []


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
