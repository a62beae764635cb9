"""The pages that say what breaks, and what may land next to what, name only tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("path", "more_than"), [("reliability.md", 50), ("reference/conflicts.md", 20)])
def test_every_test_that_the_page_names_exists(path: str, more_than: int) -> None:
    page = (ROOT / "docs" / path).read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    existing = {
        name for file in ROOT.glob("tests/**/test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    assert len(named) > more_than
    assert sorted(named - existing) == []


def test_every_metric_that_the_page_names_is_on_the_metrics_page() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    metrics = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    named = set(re.findall(r"`(lancewal_(?:ingest|flusher)_\w+)`", page))
    assert named
    assert sorted(name for name in named if f"`{name}`" not in metrics) == []
