"""The page of what readers found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.interop.made import TITLES

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "which-readers-work.md"
_HEAD = """# Which readers work

`python3 dev.py interop` writes this page. Readers without lancewal open merged tables and a named snapshot: releases of
pylance from PyPI (and a pre-release, if there is a newer one), Lance's connector for Spark, and DuckDB's extension for
Lance. *right* means that the answer equals the expected rows; otherwise the cell has the error.
"""

Found = Mapping[str, Mapping[str, Mapping[str, str]]]


def page(pylance: Found, others: Found, about: Mapping[str, str]) -> str:
    lines = [_HEAD.rstrip()]
    for name, title in TITLES.items():
        lines += ["", f"## {title}", "", f"The table: {about[name]}."]
        for readers in (pylance, *({reader: found} for reader, found in others.items())):
            asked = list(next(iter(readers.values()))[name])
            first = "pylance" if readers is pylance else "reader"
            lines += ["", f"| {first} | {' | '.join(asked)} |", "|---" * (len(asked) + 1) + "|"]
            lines += [
                f"| {reader} | {' | '.join(found[name][one] for one in asked)} |" for reader, found in readers.items()
            ]
    return "\n".join(lines) + "\n"
