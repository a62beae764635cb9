"""``--sim-seed``: run the simulation's tests with this seed alone."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sim-seed", type=int, default=None, help="repeat the simulated run of this seed alone")


@pytest.fixture
def sim_seed(request: pytest.FixtureRequest) -> int | None:
    # The option is known when this folder is named on the command line.
    seed: int | None = request.config.getoption("--sim-seed", default=None)
    return seed
