"""A table with two regions, and the key index made small: few hashes for many keys, and parts of few entries."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lancewal_core.keys.run import cut
from lancewal_core.rows.murmur2 import hashes
from lancewal_flusher.upkeep import key_runs as key_upkeep
from lancewal_flusher.upkeep import key_tiers
from tests.support.flusher_tables import FlusherTable

PART_ENTRIES = 10


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=[32, 8], ids=["32 bits", "8 bits"])
def hash_bits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of the hash of keys that are texts, such as those of several columns: with 8 of them many keys share each hash."""
    bits: int = request.param
    mask = np.uint32((1 << bits) - 1)
    monkeypatch.setattr("lancewal_core.keys.code.hashes", lambda keys: hashes(keys) & mask)
    return bits


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of hundreds of entries have many parts; runs are merged in several steps."""
    monkeypatch.setattr(key_tiers, "PART_ENTRIES", PART_ENTRIES)
    for module in (key_tiers, key_upkeep):
        monkeypatch.setattr(module, "cut", partial(cut, size=PART_ENTRIES))
