"""A lake of three tables, and a publisher that has published its cut once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flusher.cuts.publishing import NAMES, Publishing
from tests.tables.cuts.lake import Lake


@pytest.fixture
def lake(tmp_path: Path, seed: int) -> Iterator[Lake]:
    made = Lake(tmp_path, NAMES, seed)
    made.produce(10)
    yield made
    made.close()


@pytest.fixture
def live(lake: Lake) -> Publishing:
    made = Publishing(lake)
    assert made.turn().published
    return made
