"""The table with rows of three contracts: made once for a run, and copies of it for tests that write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.columns.three_contracts import ThreeContracts


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeContracts]:
    """For reads alone."""
    table = ThreeContracts(tmp_path_factory.mktemp("three_contracts"))
    table.fill()
    yield table
    table.close()


@pytest.fixture
def table(made: ThreeContracts, tmp_path: Path) -> Iterator[ThreeContracts]:
    copied = made.copied(tmp_path)
    yield copied
    copied.close()
