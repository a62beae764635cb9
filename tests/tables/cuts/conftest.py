"""Tables of a catalog, of which cuts are made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tables.cuts.lake import Lake


@pytest.fixture
def lake(tmp_path: Path, seed: int) -> Iterator[Lake]:
    made = Lake(tmp_path, seed=seed)
    made.produce(40)
    yield made
    made.close()
