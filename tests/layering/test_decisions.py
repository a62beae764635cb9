"""Records of decisions are numbered, each once, and their README lists them all."""

from __future__ import annotations

import re

from tests.layering.source import ROOT

FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")


def test_each_number_is_given_once() -> None:
    numbers = [path.name[:5] for path in RECORDS]
    assert [number for number in numbers if not re.fullmatch(r"\d{4}-", number)] == []
    assert len(set(numbers)) == len(numbers)  # work side by side may leave gaps


def test_each_is_headed_and_listed_by_its_number() -> None:
    assert [path.read_text()[:8] for path in RECORDS] == [f"# {path.name[:4]}: " for path in RECORDS]
    listed = re.findall(r"^\| \[(\d+)\]\((.+?)\) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert listed == [(path.name[:4], path.name) for path in RECORDS]
