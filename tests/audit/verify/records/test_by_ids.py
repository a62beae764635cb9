"""Rows of one contract as rows of a later one: fields are told apart by ids, whatever their values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lancewal_audit.verify.records.by_ids import by_ids, fields

FAR_DAYS = [3_663_730, -721_000]
"""Days in the years 12000 and -5, which Python's dates do not reach."""
FAR_SECONDS = [316_000_000_000, -62_500_000_000]


def stored(values: list[tuple[int, int]], days: pa.DataType, times: pa.DataType, name: str) -> pa.StructArray:
    day, at = (pa.array(some, pa.int64()) for some in zip(*values, strict=True))
    return pa.StructArray.from_arrays([day.cast(pa.int32()).cast(days), at.cast(times)], names=["day", name])


@pytest.mark.parametrize("nested", ["struct", "list"])
def test_days_and_times_of_any_year_are_carried(nested: str) -> None:
    values = list(zip(FAR_DAYS, FAR_SECONDS, strict=True))
    before = stored(values, pa.date32(), pa.timestamp("s"), "at")
    after = stored([(day, at * 1000) for day, at in values], pa.date32(), pa.timestamp("ms"), "moment")
    ids = [1, 2, 3]
    if nested == "list":
        before, after = (pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), some) for some in (before, after))
        ids = [1, 4, 2, 3]
    written, wanted = (fields(pa.schema([("place", some.type)]), {"place": ids}) for some in (before, after))
    found = by_ids(pa.record_batch({"place": before}), written, wanted)
    assert found.column("place").equals(after)
