"""``lancewal verify`` reads as readers do, by bundles, and compares that with the segments themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lancewal_audit.verify.report import report_text
from lancewal_core.names import paths
from lancewal_core.wal.bundle import Bundle, decode_bundle, encode_bundle
from tests.audit.verify.records.test_wal import verify
from tests.support.pipeline import Pipeline
from tests.support.repairs import check_strong


def without_rows(bundle: Bundle) -> Bundle:
    """As a writer that copies wrongly would make it: under the tags of the segments that lie there."""
    wrong = [
        replace(
            copy,
            segment=replace(
                copy.segment,
                entries=tuple(replace(entry, held=entry.rows.slice(0, 0)) for entry in copy.segment.entries),
            ),
        )
        for copy in bundle.copies
    ]
    return replace(bundle, copies=tuple(wrong))


def test_a_bundle_that_is_no_copy_is_found(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, partitions=2, seed=5, seal_rows=100_000, batch=10)
    for _ in range(40):
        pipeline.produce(3)
        pipeline.ingest()
    pipeline.settle()
    (key, *_) = [i.key for i in pipeline.store.list(paths.WAL) if paths.parse_wal_bundle(i.key)]
    check_strong(pipeline)
    report = verify(pipeline)
    assert (report.equal, report.counts) == (True, {}), report_text(report)
    bundle = decode_bundle(pipeline.store.get(key) or b"", key)
    pipeline.store.delete([key])
    pipeline.store.put_if_absent(key, encode_bundle(without_rows(bundle).copies, pipeline.contract.rows.wal))
    assert not verify(pipeline).equal
    pipeline.store.delete([key])
    assert verify(pipeline).equal
    pipeline.close()
