"""The seed of what is random here: printed with every test, set by ``WHOLE_PATH_SEED=<n>``."""

from __future__ import annotations

import os
import secrets

import pytest


@pytest.fixture
def seed() -> int:
    given = os.environ.get("WHOLE_PATH_SEED")
    chosen = int(given) if given else secrets.randbelow(1_000_000)
    print(f"WHOLE_PATH_SEED={chosen}")
    return chosen
