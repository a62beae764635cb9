"""Freshness is measured on each row's first sight, once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pytest

from lancewal_demo.follower import Seen, Sight, Sights, percentile

SCHEMA = pa.schema([("origin", pa.string()), ("carrier", pa.string()), ("sent_at", pa.timestamp("ms", tz="UTC"))])


def rows(*sent: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in sent], SCHEMA)


def test_a_row_is_counted_at_its_first_sight_only() -> None:
    seen = Seen()
    assert seen.first_seen(rows(("EWR", "UA", 1000), ("EWR", "UA", 1200)), 1500) == {"500": 1, "300": 1}
    assert seen.first_seen(rows(("EWR", "UA", 1000), ("EWR", "UA", 1200)), 9000) == {}
    assert seen.first_seen(rows(("EWR", "UA", 1200), ("EWR", "UA", 1300)), 1500) == {"200": 1}


def test_region_keys_are_apart() -> None:
    seen = Seen()
    seen.first_seen(rows(("EWR", "UA", 5000)), 6000)
    # Older than what was seen of another region key, and new all the same.
    assert seen.first_seen(rows(("EWR", "UA", 5000), ("LGA", "UA", 4000), ("EWR", "B6", 4500)), 6000) == {
        "2000": 1,
        "1500": 1,
    }
    assert seen.newest_ms == 5000


def test_nothing_is_seen_in_no_rows() -> None:
    assert Seen().first_seen(rows(), 1) == {}


def test_the_file_is_read_while_it_grows(tmp_path: Path) -> None:
    place = tmp_path / "sights.jsonl"
    sights = Sights(place)
    assert sights.visible() == 0
    first, second = (json.dumps(asdict(Sight(float(n), 0.1, 1, n * 100, {"7": n}))) + "\n" for n in (1, 2))
    place.write_text(first + second[:20])
    assert sights.visible() == 100
    assert sights.visible() == 100
    place.write_text(first + second)
    assert sights.visible() == 200
    assert [sight.at for sight in sights.all] == [1.0, 2.0]
    assert sights.ages_after(1.5) == Counter({7: 2})
    assert sights.ages_after(0) == Counter({7: 3})


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (90, 9), (91, 10), (99, 10), (100, 10), (1, 1)])
def test_percentiles_are_the_nearest_rank(percent: float, expected: int) -> None:
    assert percentile(Counter(range(1, 11)), percent) == expected


def test_no_rows_have_no_percentile() -> None:
    assert percentile(Counter(), 50) is None
