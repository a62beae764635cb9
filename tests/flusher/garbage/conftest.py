"""Fixtures of the tests of garbage collection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.flusher_tables import FlusherTable, upserts


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path, history_window_s=0)
    for number in range(3):
        made.generation(0, upserts(range(5 * number, 5 * number + 10), a=number))
        made.round()
    yield made
    made.close()
