"""Of what a poll brings Python's collector looks at nothing while it is on its way."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from lancewal_ingest.service.python_collector import look_at_new_objects_rarely

PARTITIONS = 1_000
OF_EACH = 17
"""Lists, tuples and the like, as a profile showed."""


@pytest.fixture
def _threshold_as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("_threshold_as_before")
def test_two_polls_of_a_thousand_partitions_are_not_looked_at() -> None:
    look_at_new_objects_rarely()
    begun: list[str] = []
    gc.collect()
    gc.callbacks.append(lambda phase, _: begun.append(phase))
    try:
        on_their_way = [[n] for n in range(2 * PARTITIONS * OF_EACH)]
    finally:
        gc.callbacks.pop()
    assert (len(on_their_way), begun) == (2 * PARTITIONS * OF_EACH, [])
