"""How often an ingest stores a segment, what seals, and how soon a row is seen; and what cannot be had."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lancewal_core.cli.estimate import pace as module
from lancewal_core.cli.estimate.deployment import Deployment
from lancewal_core.cli.estimate.pace import pace
from lancewal_core.errors import InvalidInput, WishUnreachable
from lancewal_core.settings.sections import IngestSettings
from lancewal_core.table.contract import Contract
from lancewal_ingest.regions.policy import GROUPS, LINGER_PUTS, LINGER_S_MAX, MemoryPolicy, WorkerLimits

SOME = Deployment(
    rows_per_s=10_000,
    row_bytes=200,
    partitions=64,
    members=2,
    latency_s=0.03,
    freshness_s=None,
    readers=0,
    read_every_s=0,
)


def test_what_is_known_of_other_packages_is_as_it_is_there() -> None:
    assert WorkerLimits().segment_bytes == module.SEGMENT_BYTES_MAX
    assert (LINGER_PUTS, LINGER_S_MAX) == (module.LINGER_PUTS, module.LINGER_S_MAX)
    assert MemoryPolicy().memtables_ratio == module.MEMTABLES_RATIO
    assert module.SEALED_IN_GROUPS == GROUPS
    assert Contract.model_fields["regions_per_page"].default == module.PARTITIONS_PER_PAGE


@pytest.mark.parametrize("rate", [1.0, 10.0, 300.0])
def test_segments_follow_records_that_come_by_chance(rate: float) -> None:
    """As in a play of it: one at most each period, and none before a record."""
    found = pace(replace(SOME, rows_per_s=rate, members=1))
    period_s = pace(replace(SOME, rows_per_s=3_000, members=1)).segments_per_s ** -1
    rng, clock, sent, free = np.random.default_rng(5), 0.0, 0, 0.0
    arrivals = np.cumsum(rng.exponential(1 / rate, 20_000))
    for at in arrivals.tolist():
        if at < clock:
            continue  # it goes with the segment that was sent behind it
        clock = max(at, free)
        sent, free = sent + 1, clock + period_s
    assert found.segments_per_s == pytest.approx(sent / clock, rel=0.05)


def test_segments_are_as_rare_as_the_store_is_far() -> None:
    near, far, very_far = (pace(replace(SOME, latency_s=s)).segments_per_s for s in (0.001, 0.1, 0.5))
    assert near == pytest.approx(1 / 0.05)
    assert far == pytest.approx(1 / 0.3)
    assert very_far == pytest.approx(1 / 1.0)


def test_a_wish_makes_segments_as_rare_as_it_allows() -> None:
    for wish in (0.7, 1.0, 3.0, 60.0):
        found = pace(replace(SOME, freshness_s=wish))
        assert found.most_s <= wish + 1e-9
    assert pace(replace(SOME, freshness_s=3.0)).segments_per_s < pace(replace(SOME, freshness_s=1.0)).segments_per_s


def test_what_the_latency_forbids_is_refused_and_what_can_be_had_is_named() -> None:
    with pytest.raises(WishUnreachable, match=r"freshness of 0.2 s cannot be had") as refused:
        pace(replace(SOME, freshness_s=0.2))
    best = float(re.findall(r"ask for at least ([0-9.]+) s", str(refused.value))[0])
    assert pace(replace(SOME, freshness_s=best + 0.01)).most_s <= best + 0.01
    with pytest.raises(WishUnreachable):
        pace(replace(SOME, freshness_s=best - 0.01))
    with pytest.raises(WishUnreachable):
        pace(replace(SOME, freshness_s=best, latency_s=0.06))


def test_more_rows_than_members_take_in_are_refused_and_as_many_as_are_named_do() -> None:
    for rows, nbytes in ((2_000_000, 20), (400_000, 20_000)):
        wished = replace(SOME, rows_per_s=rows, row_bytes=nbytes)
        with pytest.raises(WishUnreachable, match="at least") as refused:
            pace(replace(wished, members=1))
        needed = int(re.findall(r"at least ([0-9]+) members", str(refused.value))[0])
        found = pace(replace(wished, members=needed))
        assert found.segments_per_s * module.SEGMENT_BYTES_MAX >= rows * nbytes / needed
        with pytest.raises(WishUnreachable):
            pace(replace(wished, members=needed - 1))
    with pytest.raises(WishUnreachable, match="more partitions"):
        pace(replace(SOME, partitions=2, rows_per_s=2_000_000))


@pytest.mark.parametrize(
    ("changed", "by", "turns"),
    [
        ({}, "ingest.seal_log_distance", 8),
        ({"partitions": 6}, "ingest.seal_log_distance", 3),
        ({"rows_per_s": 1}, "ingest.seal_age_s", 1),
        ({"row_bytes": 10_000}, "ingest.memory_bytes_max", 32),
        ({"row_bytes": 1, "rows_per_s": 80_000, "partitions": 1, "members": 1}, "ingest.seal_rows", 1),
        ({"row_bytes": 2_000, "partitions": 1, "members": 1, "rows_per_s": 2_000}, "ingest.seal_bytes", 1),
    ],
)
def test_a_generation_is_sealed_by_the_limit_that_comes_first(changed: dict[str, Any], by: str, turns: float) -> None:
    found = pace(replace(SOME, **changed))
    assert (found.sealed_by, found.turns) == (by, turns)


def test_a_generation_lasts_as_long_as_entries_of_its_segments_let_it() -> None:
    """As of a log that has them: of each, the partitions that its rows fell on."""
    rng = np.random.default_rng(7)
    for partitions in (2, 64, 512):
        found = pace(replace(SOME, partitions=partitions, row_bytes=50))
        rows = rng.integers(0, partitions // 2, (200, round(5_000 / found.segments_per_s)))
        lengths = [max(1.0, math.sqrt(len(set(of_one.tolist()))) / 2) for of_one in rows]
        distance = IngestSettings().seal_log_distance
        assert found.generation_s == pytest.approx(distance / (found.segments_per_s * np.mean(lengths)), rel=0.02)


@pytest.mark.parametrize(
    "changed",
    [
        {"rows_per_s": 0.0},
        {"row_bytes": 0.0},
        {"rows_per_s": -1.0},
        {"rows_per_s": float("nan")},
        {"partitions": 0},
        {"members": 65},
        {"members": 0},
        {"latency_s": float("inf")},
        {"readers": -1},
        {"partitions": 1_000_000},
    ],
)
def test_what_no_deployment_is_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        replace(SOME, **changed)
