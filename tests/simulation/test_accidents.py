"""Every accident ends as the protocol says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.accidents import ACCIDENTS


@pytest.mark.parametrize("accident", ACCIDENTS, ids=lambda accident: accident.__name__)
def test_accident(accident: Callable[[], None]) -> None:
    accident()
