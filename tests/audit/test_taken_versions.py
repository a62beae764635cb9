"""By which versions of the contract the records of a gap may have been taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lancewal_audit.taken_versions import versions_between
from tests.ingest.service.test_worker import Place


@pytest.mark.parametrize(
    ("before", "after", "versions"),
    [(None, None, (3,)), (1, None, (3, 1)), (2, None, (2,)), (1, 1, (1,)), (1, 2, (2, 1)), (2, 3, (3,))],
)
def test_a_schema_that_was_accepted_meanwhile(before: int | None, after: int | None, versions: tuple[int, ...]) -> None:
    """Version 2 has accepted a schema, and version 3 has another policy."""
    first = Place().contract
    second = first.model_copy(update={"version": 2, "schema_versions": {"id-7": 2}})
    third = second.model_copy(update={"version": 3, "on_bad_record": "ignore"})
    contracts = {one.version: one for one in (first, second, third)}
    known = SimpleNamespace(of=lambda _, version: contracts[version])
    opened: Any = SimpleNamespace(contract=third, contracts=known, store=None)
    assert versions_between(opened, before, after) == versions
