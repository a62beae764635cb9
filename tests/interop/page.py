"""The page of what readers found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.interop.made import TITLES

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "which-readers-work.md"
_HEAD = """# Which readers work

`python3 dev.py interop` writes this page. Readers without lancewal open merged tables and a named snapshot: releases of
pylance from PyPI (and a pre-release, if there is a newer one), Lance's connector for Spark, and DuckDB's extension for
Lance. *right* means that the answer equals the expected rows; otherwise the cell has the error. A reader
that *panics* stops in the middle of its work.

Tables of a [catalog](../how-to/tables-by-name.md) are found by name, through Lance's directory namespace, and through a REST
server of Lance Namespace (pylance's own). *list* shows all its tables. There the whole name `shop.orders` is one table of the
root, and `shop` is not a namespace: in Spark it is ``lake.`shop.orders` ``. pylance up to 4.0.2 lists the tables, but its
`dataset` takes no `namespace_client`: open a table by its address there.

These readers do not know cuts. They read a table of a [cut](../how-to/read-tables-together.md) as the Lance branch that
`lancewal cut show NAME -o json` names. lance-spark has no option for a branch. It reads a branch by its folder,
`tree/BRANCH` in the table's folder.
"""

PANICS = "Lance's reader panics"
_OF_A_PANIC = ("panicked", "PanicException", "Task was aborted")
"""Words of the errors of a panic.  Which of its tasks tells first, and its number, differ from run to run."""
Found = Mapping[str, Mapping[str, Mapping[str, str]]]


def page(pylance: Found, others: Found, about: Mapping[str, str]) -> str:
    lines = [_HEAD.rstrip()]
    for name, title in TITLES.items():
        lines += ["", f"## {title}", "", f"The table: {about[name]}."]
        for readers in (pylance, *({reader: found} for reader, found in others.items() if name in found)):
            asked = list(next(iter(readers.values()))[name])
            first = "pylance" if readers is pylance else "reader"
            lines += ["", f"| {first} | {' | '.join(asked)} |", "|---" * (len(asked) + 1) + "|"]
            lines += [
                f"| {reader} | {' | '.join(_cell(found[name][one]) for one in asked)} |"
                for reader, found in readers.items()
            ]
    return "\n".join(lines) + "\n"


def _cell(answer: str) -> str:
    return PANICS if any(word in answer for word in _OF_A_PANIC) else answer
