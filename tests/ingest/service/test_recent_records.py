"""What became of each partition's newest records: of about two minutes, and of the last that came where none come any more."""

from __future__ import annotations

import pyarrow as pa

from lancewal_core.names.ids import Position
from lancewal_core.process.status.facts import Rejections
from lancewal_core.wal.entry import Entry, RejectedOffset
from lancewal_ingest.service.recent_records import BUCKET_S, RecentRecords
from tests.support.regions import region

ZERO, ONE = region(0), region(1)


def entry(partition: int, first: int, rows: int, *rejected: RejectedOffset) -> Entry:
    batch = pa.RecordBatch.from_pydict({"k": list(range(rows))})
    return Entry(region(partition), Position(first), Position(first + 10), 1, batch, rejected)


def test_good_records_of_long_ago_do_not_hide_that_all_are_rejected_now() -> None:
    records = RecentRecords()
    assert records.of(ZERO) == Rejections()
    records.add(entry(0, 0, 8, RejectedOffset(8, "type")), (), 0.0)
    assert records.of(ZERO) == Rejections(1, 8, "type", 8)
    bad = [RejectedOffset(offset, "not_json") for offset in (11, 12, 13)]
    records.add(entry(0, 10, 0, *bad), (), BUCKET_S + 1)
    assert records.of(ZERO) == Rejections(4, 8, "not_json", 13)
    records.add(entry(0, 20, 0, RejectedOffset(21, "not_json")), (), 2 * BUCKET_S + 2)
    assert records.of(ZERO) == Rejections(4, 0, "not_json", 21)
    records.add(entry(0, 30, 0), (), 9 * BUCKET_S)  # a position that moves says nothing of records
    assert records.of(ZERO).records == 4


def test_what_is_ignored_is_not_rejected() -> None:
    records = RecentRecords()
    passed = RejectedOffset(1, "misrouted")
    records.add(entry(0, 0, 0, passed), {passed}, 0.0)
    assert records.of(ZERO) == Rejections()
    records.add(entry(0, 10, 0, RejectedOffset(11, "not_json"), RejectedOffset(12, "misrouted")), (), 1.0)
    assert records.of(ZERO).records == 2


def test_partitions_that_are_no_longer_ours_are_forgotten() -> None:
    records = RecentRecords()
    for partition in (0, 1):
        records.add(entry(partition, 0, 1), (), 0.0)
    records.keep({ONE})
    assert (records.of(ZERO).rows, records.of(ONE).rows) == (0, 1)
