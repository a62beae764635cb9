"""``lancewal verify --from wal`` in this process: every column type, what is trimmed, many small shares."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
import yaml

from lancewal_audit.verify import verification
from lancewal_audit.verify.report import KINDS, Report, report_text
from lancewal_audit.verify.shares import on_disk as shares
from lancewal_audit.verify.verification import VerifyRequest, verify_table
from lancewal_core.cli.program import run
from lancewal_core.settings.load import Settings
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.table import open_table
from tests.support.pipeline import EVERY_TYPE, Pipeline
from tests.support.repairs import command

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "verify-a-table.md"


def verify(pipeline: Pipeline, **asked: Any) -> Report:
    return verify_table(Settings(), pipeline.uri, VerifyRequest(sources="wal", **asked))


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, EVERY_TYPE, seed=5, grace_s=0, history_window_s=10)
    made.produce(400)
    made.merge_all()
    made.produce(200)
    made.hand_over()
    made.produce(200)
    made.ingest()
    yield made
    made.close()


def test_every_type_in_shares_of_any_size(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = verify(pipeline)
    assert whole.equal, report_text(whole)
    assert (whole.rows_read, whole.rows_unchecked, whole.records) == (len(pipeline.oracle), 0, 800)
    monkeypatch.setattr(verification, "SHARE_ROWS", 30)
    monkeypatch.setattr(shares, "BUFFER_BYTES", 2_000)
    assert verify(pipeline) == whole
    lance.dataset(pipeline.uri).delete("id = 3")
    found = verify(pipeline, findings_max=2)
    assert found.counts["missing"] > 2
    assert len([f for f in found.findings if (f.kind, f.where) == ("missing", "merged table")]) == 2
    monkeypatch.undo()
    assert verify(pipeline, findings_max=2).counts == found.counts


def test_what_is_trimmed_is_not_covered(pipeline: Pipeline) -> None:
    pipeline.merge_all()
    pipeline.clock.ahead_s = 60
    for _ in range(3):
        pipeline.collect()
        pipeline.clock.ahead_s += 60
    nothing = verify(pipeline)
    assert (nothing.keys, nothing.rows_unchecked, nothing.equal) == (0, len(pipeline.oracle), True)
    assert nothing.as_json()["nothing_compared"] is True
    assert report_text(nothing).endswith("\nnothing was compared")
    assert run(["verify", "--table", pipeline.uri, "--from", "wal"]) == 1
    # Alone in what is left of its region's records: a patch, whose row comes from before.
    rows = lance.dataset(pipeline.uri).to_table().to_pylist()
    patched, other = rows[0], rows[1]
    pipeline.patch(patched["region"], patched["id"], a=1)
    pipeline.merge_all()
    report = verify(pipeline)
    assert report.equal, report_text(report)
    assert (report.records, report.keys, report.keys_partly) == (1, 1, 1)
    assert not report.nothing_compared
    assert report_text(report).endswith("\nequal, as far as it was compared")
    assert report.rows_unchecked == len(pipeline.oracle) - 1
    assert all(region.why_not == "the WAL before it is trimmed" for region in report.regions)
    # Only what the patch set can be judged, and only its key.
    where = f"region = '{patched['region']}' and id = {patched['id']}"
    lance.dataset(pipeline.uri).update({"s": "'changed'"}, where=where)
    lance.dataset(pipeline.uri).delete(f"region = '{other['region']}' and id = {other['id']}")
    assert verify(pipeline).equal
    lance.dataset(pipeline.uri).update({"a": "2"}, where=where)
    (found,) = (f for f in verify(pipeline).findings if f.kind == "differs")
    assert found.columns == ("a",)
    # A key that is there twice is one without any record.
    twice = rows[2]
    pipeline.append_by_hand([twice])
    (found,) = (f for f in verify(pipeline).findings if f.kind == "duplicate")
    assert found.key == {"region": twice["region"], "id": twice["id"]}


def test_a_table_that_had_rows_before(tmp_path: Path) -> None:
    """As one that was attached: what no record explains is no foreign row, and a patch's base is not known."""
    pipeline = Pipeline(tmp_path, seed=5)
    pipeline.append_by_hand([{"region": "r1", "id": 1000, "s": "old"}, {"region": "r2", "id": 1000, "s": "old"}])
    for record in (Path(pipeline.uri) / "_lancewal" / "merges").glob("*"):
        record.rename(record.with_name(f"{2**64 - 1 - pipeline.table.newest().version:020d}.json"))
    pipeline.produce(100)
    pipeline.patch("r1", 1000, a=3)
    pipeline.merge_all()
    report = verify(pipeline, foreign_rows_differ=True)
    assert report.equal, report_text(report)
    assert report.rows_unchecked == 1
    assert report.keys_partly > 0
    pipeline.close()


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "TMPDIR", 2),
        (pa.ArrowInvalid("a cast"), "a cast", 5),
        (pa.ArrowMemoryError("malloc"), "--sample", 2),
    ],
)
def test_what_could_not_be_compared_is_no_difference(
    pipeline: Pipeline,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    text: str,
    code: int,
) -> None:
    def fails(self: shares.Shares) -> None:
        raise error

    monkeypatch.setattr(shares.Shares, "_write", fails)
    config = tmp_path / "lancewal.yaml"
    config.write_text(yaml.safe_dump({"table": {"uri": pipeline.uri}}))
    assert run(["verify", "--from", "wal", "--config", str(config)]) == code
    said = capsys.readouterr().err
    assert said.startswith("lancewal: not_compared: ")
    assert text in said


def test_the_page_lists_every_kind_with_its_meaning() -> None:
    page = PAGE.read_text()
    listed = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    kinds = {cells[0].strip(" `"): cells[1].strip() for cells in listed}
    assert {name: text for name, text in kinds.items() if not name.startswith("--")} == {
        **KINDS,
        "hidden": KINDS["hidden"],
    }


def test_rows_dropped_after_a_restore_are_not_covered(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, partitions=1, seed=5)
    pipeline.produce(100)
    pipeline.merge_all()
    first = pipeline.table.newest().version
    pipeline.produce(100)
    pipeline.merge_all()
    before = receipt_of(open_table(pipeline.uri).to_arrow().schema).to_json()
    earlier: Any = lance.dataset(pipeline.uri, version=first)
    earlier.restore()
    command(pipeline, "restored", "--rows-since", "drop")
    report = verify(pipeline)
    assert report.equal, report_text(report)
    assert (report.records, report.rows_unchecked) == (0, report.rows_read)
    assert "a restore dropped" in report.regions[0].why_not
    # What comes later is judged.
    pipeline.upsert("r1", 1, a=1)
    pipeline.delete("r1", 2)
    pipeline.merge_all()
    assert verify(pipeline).equal
    lance.dataset(pipeline.uri).delete("id = 1")
    pipeline.append_by_hand([{"region": "r1", "id": 2}])
    assert verify(pipeline).counts == {"missing": 1, "deleted": 1}
    # And of the time before all.
    at_that_time = verify(pipeline, at=before)
    assert (at_that_time.equal, at_that_time.records, at_that_time.rows_unchecked) == (True, 200, 0)
    pipeline.close()


def test_what_is_merged_again_after_a_restore_is_judged(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, partitions=1, seed=5)
    pipeline.produce(100)
    pipeline.merge_all()
    first = pipeline.table.newest().version
    pipeline.produce(100)
    pipeline.merge_all()
    earlier: Any = lance.dataset(pipeline.uri, version=first)
    earlier.restore()
    command(pipeline, "restored", "--rows-since", "replay")
    report = verify(pipeline)
    assert (report.equal, report.records, report.rows_unchecked) == (True, 200, 0), report_text(report)
    pipeline.close()


@pytest.mark.parametrize("form", ["receipt", "JSON", "version"])
def test_each_form_of_a_point(pipeline: Pipeline, form: str) -> None:
    at = open_table(pipeline.uri).receipt()
    rows = len(pipeline.oracle)
    merged = lance.dataset(pipeline.uri)
    pipeline.produce(100)
    pipeline.merge_all()
    text = {"receipt": str(at), "JSON": at.to_json(), "version": f"version:{at.version}"}[form]
    report = verify(pipeline, at=text)
    assert report.equal, report_text(report)
    assert report.rows_read == (merged.count_rows() if form == "version" else rows)
    assert run(["verify", "--table", pipeline.uri, "--from", "wal", "--at", text]) == 0
