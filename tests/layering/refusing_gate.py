"""A pytest plugin: the gate for rows of another contract (``rows_as``) refuses all rows that a place takes from it.

``REFUSED_AT`` in the environment names one place, to look for a test of it.  Else each test has its place of
``test_gate.PLACES``.  A test that met a refusal has the property ``refused``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from lancewal_core.keys import conflicts
from lancewal_core.region import opened_table
from lancewal_core.rows.schema import RowSchema


class Refused(Exception):
    """The gate lets nothing through."""


def is_called_from(place: str) -> bool:
    """Whether the function ``module:name`` is on this thread's stack."""
    module, _, name = place.partition(":")
    frame: FrameType | None = sys._getframe()
    while frame:
        if frame.f_code.co_name == name and frame.f_globals.get("__name__") == module:
            return True
        frame = frame.f_back
    return False


@pytest.fixture(autouse=True)
def _refusing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.layering.test_gate import PLACES

    given = os.environ.get("REFUSED_AT")
    place = given or next(place for place, test in PLACES.items() if test == request.node.nodeid)

    def rows_as(rows: Any, written: RowSchema, wanted: RowSchema, where: Callable[[], str]) -> Any:
        if is_called_from(place):
            request.node.user_properties.append(("refused", place))
            raise Refused(f"refused at {place}: {where()}")
        return rows

    monkeypatch.setattr(opened_table, "rows_as", rows_as)
    monkeypatch.setattr(conflicts, "rows_as", rows_as)
