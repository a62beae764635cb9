"""The same on S3, beside flusher, compaction, expiry of versions and clean-ups, and read by plain Lance in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.cli.estimate.counted import SMALL
from lancewal_core.errors import ObjectCorrupt
from lancewal_core.process.clock import SystemClock
from lancewal_core.store.object_store import Done, put_new
from lancewal_flusher.garbage.collect import GarbageState, collect_garbage
from lancewal_flusher.garbage.snapshots import drop_snapshot
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_reader.table import Table, reads_of
from lancewal_tables.snapshots.make import make_snapshot
from tests.deploy.test_requests_page import Acts, acts

URI = "s3://bucket/table"
DAY_S = 24 * 3600
_PLAIN = """
import json, sys, lance
uri, options, name = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
table = lance.dataset(uri, storage_options=options).checkout_version((name, None))
print(table.count_rows(), table.to_table(filter="id = 7").num_rows, table.to_table().num_rows)
"""


class Later(SystemClock):
    def __init__(self, days: int) -> None:
        self.s = days * DAY_S

    def now_ms(self) -> int:
        return super().now_ms() + 1000 * self.s

    def monotonic(self) -> float:
        return super().monotonic() + self.s


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: json.dumps(row, sort_keys=True, default=str))


def test_a_snapshot_stays_what_it_is(tmp_path: object) -> None:
    with acts(SMALL) as table:
        for _ in range(2):
            table.feed()
            table._merge()
        table.feed()
        before = sorted_rows(table._open().to_arrow())
        context = table.context
        made = make_snapshot(context, reads_of(context, URI), "eom")
        assert made.rows > 0
        _goes_on(table)
        plain: Any = lance.dataset(URI, storage_options=context.table._options).checkout_version(("eom", None))  # type: ignore[attr-defined] # of a LanceTable
        assert sorted_rows(plain.to_table()) == before
        reader = Table(reads_of(context, URI))
        assert sorted_rows(reader.to_arrow(at="snapshot:eom")) == before
        options = json.dumps(context.table._options)  # type: ignore[attr-defined] # of a LanceTable
        said = subprocess.run(
            [sys.executable, "-c", _PLAIN, URI, options, "eom"], text=True, capture_output=True, check=True, timeout=120
        )
        of_7 = sum(row["id"] == 7 for row in before)
        assert said.stdout.split() == [str(len(before)), str(of_7), str(len(before))]
        for odd in ("_refs/branches/._x.json", "_refs/tags/a%zz/x y.json", "_refs/tags/x y.json"):
            assert isinstance(put_new(context.store, odd, b"hello"), Done)
        assert [snapshot.name for snapshot in reader.snapshots()] == ["eom"]
        with pytest.raises(ObjectCorrupt, match=r"^_refs/branches/\._x\.json, _refs/tags/x y\.json in "):
            drop_snapshot(context.table, "eom")
        context.store.delete(["_refs/branches/._x.json", "_refs/tags/x y.json"])
        drop_snapshot(context.table, "eom")
        assert reader.snapshots() == []
        assert not context.store.list("tree/")


def _goes_on(table: Acts) -> None:
    """Merges, a compaction, expiry days later, and both kinds of clean-up by a user."""
    context = table.context
    table.feed()
    table._merge()
    done = compact_next(context, CompactionLimits(fragments_min=2, growth=1.0), FileSizes(), with_sentinel=False)
    assert isinstance(done, Compacted)
    table.feed()
    table._merge()
    assert collect_garbage(replace(context, clock=Later(days=8)), GarbageState()).expired_versions
    options: dict[str, Any] = {"storage_options": context.table._options}  # type: ignore[attr-defined] # of a LanceTable
    lance.dataset(URI, **options).cleanup_old_versions(older_than=timedelta(0))
    lance.dataset(URI, **options).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
