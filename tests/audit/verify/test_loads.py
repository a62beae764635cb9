"""``lancewal verify`` of tables into which rows were loaded, and of which rows expire: neither is a difference.

By the WAL alone: it needs no broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancewal_audit.verify.report import Report
from lancewal_audit.verify.verification import VerifyRequest, verify_table
from lancewal_core.rows.schema import Op
from lancewal_core.rows.ttl import Ttl
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_flusher.upkeep.expiry import Expired, OldestTimes, expire_next
from lancewal_tables.load.whole import load_files
from tests.support.flusher_tables import COLUMNS, FlusherTable, Operation, delete, patch, upserts
from tests.support.scripted import ManualClock


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(5)))
    made.generation(1, upserts(range(3)))
    made.round()
    yield made
    made.close()


def verify(table: FlusherTable) -> Report:
    return verify_table(Settings(table=TableSettings(uri=table.uri)), table.uri, VerifyRequest(sources="wal"))


def kinds(report: Report) -> list[str]:
    return sorted(finding.kind for finding in report.findings)


def test_loaded_rows_are_not_covered_and_patches_of_them_are(table: FlusherTable, tmp_path: Path) -> None:
    rows = [{"region": "r0", "id": id, "a": -1, "s": "loaded", "tags": None} for id in range(10)]
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows, COLUMNS), file)
    load_files(Settings(table=TableSettings(uri=table.uri)), [str(file)])
    table.generation(0, [patch(6, a=1), patch(2, a=1), delete(7)])
    table.round()
    assert kinds(verify(table)) == []
    # a row that is wrong is still found
    table.dataset.update({"a": "77"}, where="region = 'r0' and id in (2, 6)")
    assert kinds(verify(table)) == ["differs", "differs"]


def test_rows_that_have_expired_are_not_missing(tmp_path: Path) -> None:
    table = FlusherTable(
        tmp_path, more=[pa.field("at", pa.timestamp("us", "UTC"))], patches=False, ttl_column="at", ttl_s=3600
    )
    now = datetime.now(UTC)
    times = {1: now - timedelta(hours=3), 2: now - timedelta(hours=2), 3: now, 4: None}
    table.generation(
        0, [Operation(Op.UPSERT, id, {"a": 0, "s": None, "tags": None, "at": at}) for id, at in times.items()]
    )
    table.round()
    context = replace(table.context(), clock=ManualClock(epoch_ms=int(now.timestamp() * 1000)))
    assert isinstance(expire_next(context, Ttl("at", 3600), OldestTimes()), Expired)
    assert len(table.rows()) == 2
    assert kinds(verify(table)) == []
    table.user_delete(0, 3)
    assert set(kinds(verify(table))) == {"hidden", "missing"}
    table.close()
