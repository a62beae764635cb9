"""Verify a table: fold its records again, and compare the result with the table's rows.

Guarantees
 1. Nothing of the table, its objects, its topic or its consumer group is changed.
 2. Both sides of the comparison are of one state: a receipt, and the records below its cut.  Services may run
    meanwhile.
 3. Memory is bounded: that of a strong read, some 32 MB for each of at most four kinds of rows, and one share of the
    keys.  A share has about ``SHARE_ROWS`` records or rows (more only if single keys have more).  There are at most
    ``_SHARES_MAX`` shares, so above 100 million chosen records or rows, shares and memory grow with their number.  The
    other shares are on the local disk, compressed, in the folder for temporary files.  Indexes: see ``index_check``.

Steps
 1. Plan a strong read, or a read at a receipt.  This gives the receipt {V, cut}.
 2. Read W(V), and find which records below the cut each source has (``scope``, ``evidence``).
 3. Put into shares: the rows of the read, those of version V as a plain Lance reader scans it, and the records.
 4. Share by share, fold the records by ``key_fold``, and make the comparisons of ``compare``.
 5. Search for wrong and missing rows among the rows that deletion vectors hide.
 6. If asked for, look up present and former values of a sample of the keys through version V's secondary indexes
    (``index_check``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from lancewal_audit.verify.compare import Comparison
from lancewal_audit.verify.evidence import Evidence
from lancewal_audit.verify.hidden_rows import hidden_rows
from lancewal_audit.verify.index_check import IndexCheck
from lancewal_audit.verify.records.by_ids import by_ids, fields, fields_of
from lancewal_audit.verify.records.topic import TopicReader
from lancewal_audit.verify.records.wal import WalRecords
from lancewal_audit.verify.report import Findings, Report
from lancewal_audit.verify.scope import Scope, find_scope
from lancewal_audit.verify.shares.by_share import ShareWriter
from lancewal_audit.verify.shares.sample import KeySample
from lancewal_audit.verify.summary import VerifyRun, summarise
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.progress import step
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.settings.load import Settings
from lancewal_core.table.checks import check_topics
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.lance.errors import reading
from lancewal_core.wal.writer_schemas import WriterSchemas
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table

SHARE_ROWS = 100_000
_SHARES_MAX = 1_000
"""Most shares.  Each share is a file for every kind of rows."""
_IO_THREADS = 8

Sources = Literal["topic", "wal", "both"]


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """Request to verify a table."""

    sources: Sources = "both"
    at: str | None = None
    """A point as text, such as a receipt or ``version:412``; None: a strong read now."""
    fraction: float = 1.0
    """Fraction of the keys to compare, unless ``keys`` is given."""
    keys: int | None = None
    """About this many keys are compared; None: ``fraction`` of them."""
    partitions: frozenset[int] | None = None
    """Partitions to compare; None: all."""
    foreign_rows_differ: bool = False
    """Whether a row that no record explains counts as a difference."""
    findings_max: int = 20
    """Number of findings of each kind and place that the report names at most."""
    index_keys: int | None = None
    """About this many keys are looked up through the indexes; None: the indexes are not checked."""


def verify_table(settings: Settings, uri: str, asked: VerifyRequest) -> Report:
    """Verify the table at ``uri`` (steps 1 to 6), and return the report.

    Errors are those of a strong read, and of the sources.  A difference is a finding in the report, not an error."""
    if asked.sources != "wal":
        settings.need("kafka.bootstrap_servers")
    tasks = ThreadTasks(workers=1, io_threads=_IO_THREADS)
    with closing(tasks), tempfile.TemporaryDirectory(prefix="lancewal-verify-") as folder:
        # Step 1
        address = Address.of(settings, uri)
        reader = open_table(uri, storage_options=address.options, base_paths=address.base_paths)
        table = address.table()
        store = address.store()
        check_fit(store, table.newest(), reader.contract)
        if asked.sources != "wal":
            check_topics(settings, reader.contract)
        opened = OpenedTable.over(store, table, reader.contract, tasks, SystemClock())
        with step("planning the read"):
            read = reader.to_batches(at=asked.at)
        receipt = receipt_of(read.schema)
        # Step 2
        with step("finding the records to compare with"):
            in_force = opened.watermarks.at(receipt.version)
            pinned = table.at(receipt.version)
            scope = find_scope(opened, receipt, pinned, in_force, asked.partitions, read.schema)
            evidence = _evidence(settings, opened, scope, asked.sources)
        return _compare(uri, asked, scope, evidence, read, Path(folder))


def _evidence(settings: Settings, opened: OpenedTable, scope: Scope, sources: Sources) -> Evidence:
    schemas = WriterSchemas(opened.store, scope.contract.making)
    topic = None if sources == "wal" else TopicReader(settings, scope.eras, scope.contract, schemas)
    return Evidence(scope, WalRecords(opened, scope.contract), topic, from_wal=sources != "topic")


def _compare(
    uri: str, asked: VerifyRequest, scope: Scope, evidence: Evidence, read: Iterator[pa.RecordBatch], folder: Path
) -> Report:
    findings = Findings(asked.findings_max)
    fraction = _fraction(asked, scope)
    records = max(scope.live_rows, evidence.records_max) * fraction
    count = min(max(-int(-records // SHARE_ROWS), 1), _SHARES_MAX)
    writer = ShareWriter(scope.contract, KeySample(scope.contract, fraction, asked.partitions), folder, count)
    # Step 3
    with step("reading the table", unit="rows") as told:
        read_rows = writer.rows("read", told.counting(read, len))
    with step("scanning the Lance table", scope.live_rows, "rows") as told:
        merged_rows = writer.rows("merged", told.counting(_plain_scan(scope), len))
    evidence.gather(writer, findings)
    # Step 4
    comparison = Comparison(scope, evidence, findings)
    indexes = None if asked.index_keys is None else IndexCheck(scope.pinned, scope.contract.rows, asked.index_keys)
    with step("comparing", count, "shares of the keys") as told:
        for number in told.counting(range(count)):
            compared, topic, wal = evidence.load(number)
            merged = merged_rows.load(number)
            comparison.table(compared, merged, read_rows.load(number))
            comparison.logs(topic, wal)
            if indexes is not None:
                indexes.sample.add(compared, merged)
    comparison.rejected()
    # Step 5
    with step("looking at hidden rows"):
        for finding in hidden_rows(scope.pinned, scope.contract.rows, comparison.tally.wanted):
            findings.add(finding)
    # Step 6
    with step("asking indexes"):
        index_reports = None if indexes is None else indexes.run(findings)
    run = VerifyRun(uri, asked.at, fraction, asked.foreign_rows_differ, read_rows.rows, merged_rows.rows, index_reports)
    return summarise(run, scope, evidence, comparison.tally, findings)


def _fraction(asked: VerifyRequest, scope: Scope) -> float:
    if asked.keys is None:
        return asked.fraction
    chosen = frozenset(range(scope.contract.partitions)) if asked.partitions is None else asked.partitions
    live = scope.live_rows * len(chosen) / scope.contract.partitions  # keys are spread about evenly over the partitions
    cuts = ((region, end) for region, end in scope.cut.items() if region.partition in chosen)
    behind = sum(max(end - scope.merged(region), 0) for region, end in cuts)
    return min(1.0, asked.keys / max(live + behind, 1))


def _plain_scan(scope: Scope) -> Iterator[pa.RecordBatch]:
    """Scan the version by plain Lance, not by lancewal's own scan, which leaves hidden rows out by itself."""
    if not scope.live_rows:
        return
    pinned, wanted = scope.pinned, fields_of(scope.contract)
    first = {
        new: old for column in scope.contract.columns for new, old in zip(column.field_ids, column.ids, strict=True)
    }
    ids = {name: [first.get(one, one) for one in of_column] for name, of_column in pinned.field_ids.items()}
    ours = {field.id for field in wanted}
    found = tuple(field for field in fields(pinned.schema, ids) if field.id in ours)
    with reading(f"scanning version {pinned.version}"):
        for batch in pinned.dataset.scanner(columns=[field.name for field in found]).to_batches():
            yield by_ids(batch, found, wanted)
