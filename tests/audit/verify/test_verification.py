"""``lancewal verify`` on a real topic: what is right is found equal, each kind of damage is found and named.

One table is made for the whole module: upserts, patches and deletes in several regions, bad records, an accepted loss; merged
rows, flushes and log.  Each damage is done to a copy of its folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner, Result

from lancewal_audit.commands.verify import command
from lancewal_audit.verify.report import Finding, Report, report_text
from lancewal_audit.verify.verification import VerifyRequest, verify_table
from lancewal_core.cli.groups import with_options
from lancewal_core.cli.options import read_settings
from lancewal_core.errors import ActionNeeded
from lancewal_core.names.paths import parse_wal_segment
from lancewal_core.store.address import place_of
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Segment, decode_segment, encode_segment
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.point.receipt import Receipt
from tests.support.retention import delete_records
from tests.support.steps import steps_told
from tests.whole_path.feed import PARTITIONS, Key, Row
from tests.whole_path.world import World, make_world, positions, user_row

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

BAD = (b"{not json", b'{"customer": "customer-1"}', b'{"customer": "customer-1", "id": 1, "count": "x"}')


@dataclass(frozen=True, slots=True)
class Made:
    """The table, and what of it the tests go by."""

    world: World
    lost_partition: int
    behind_loss: int
    """The first offset that Kafka has of that partition."""
    merged: dict[int, int]
    earlier: Receipt


@pytest.fixture(scope="module")
def made(kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("verify")
    world = make_world(
        kafka, f"verify-{folder.parent.name}", folder, 7, in_process=True,
        table={"history_window_s": 3600, "grace_s": 600}, ingest={"seal_rows": 10_000, "seal_age_s": 3600},
    )  # fmt: skip
    feed = world.feed
    feed.produce(300)
    for number, value in enumerate(BAD * 3):  # some in every partition
        feed.send_raw(value, b"customer-%d" % number)
        feed.produce(20)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    ingest.stop()
    world.merge_all()
    merged = positions(world.check_merged())
    feed.produce(200)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    earlier = world.check_strong()
    ingest.kill()
    before = dict(feed.history.ends)
    feed.produce(200)
    partition, end = max(feed.history.ends.items(), key=lambda item: item[1] - before[item[0]])
    behind = end - 3
    delete_records(world.servers, feed.topic, {partition: behind})
    world.lancewal.succeed("offset", "accept-loss", f"{feed.topic}-{partition}", "--yes")
    for offset in range(before[partition], behind):
        feed.history.records[partition][offset] = None
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    world.check_strong()
    ingest.kill()
    return Made(world, partition, behind, merged, earlier)


@pytest.fixture
def copy(made: Made, tmp_path: Path) -> str:
    """The table's folder once more, to be damaged."""
    return shutil.copytree(made.world.uri, str(tmp_path / "table"))


def verify(made: Made, uri: str | None = None, **asked: Any) -> Report:
    return verify_table(read_settings(made.world.lancewal.config), uri or made.world.uri, VerifyRequest(**asked))


def only(report: Report, kind: str, **counts: int) -> list[Finding]:
    """The findings of a kind, which must be all; ``counts`` are those of other kinds."""
    found = [finding for finding in report.findings if finding.kind == kind]
    assert dict(report.counts) == {kind: len(found), **counts}, report_text(report)
    return found


def key_of(row: Row) -> dict[str, object]:
    return {"customer": row["customer"], "id": row["id"]}


def where(row: Row) -> str:
    return f"customer = '{row['customer']}' and id = {row['id']}"


def merged_rows(made: Made) -> list[Row]:
    """Rows that the merged table has right, and that no later record touches."""
    history = made.world.feed.history
    merged, now = history.fold(made.merged), history.fold(history.ends)
    later = {
        record.key
        for partition, offsets in history.records.items()
        for offset, record in offsets.items()
        if record is not None and offset >= made.merged[partition]
    }
    return [row for key, row in sorted(merged.items()) if key in now and key not in later]


def offset_of(made: Made, row: Row) -> tuple[int, int]:
    """The newest record of a row's key."""
    return max(
        (partition, offset)
        for partition, offsets in made.world.feed.history.records.items()
        for offset, record in offsets.items()
        if record is not None and record.key == (row["customer"], row["id"])
    )


# -- what is right ---------------------------------------------------------------------------------------------


def test_a_sound_table_is_equal(made: Made, tmp_path: Path) -> None:
    world, history, before = made.world, made.world.feed.history, files(made.world.uri)
    place = tmp_path / "report.json"
    answer = world.lancewal.run("verify", "--report", str(place))
    assert answer.code == 0, answer.out + answer.err
    assert answer.out.endswith("\nequal\n")
    assert files(world.uri) == before
    said = json.loads(place.read_text())
    assert said["equal"] is True
    assert said["counts"] == {}
    now, ends = history.fold(history.ends), history.ends
    assert (said["rows_read"], said["rows_merged"]) == (len(now), len(history.fold(made.merged)))
    assert (said["rows_unchecked"], said["keys_partly"]) == (0, 0)
    records = [r for offsets in history.records.values() for r in offsets.values()]
    assert said["records"] == sum(r is not None for r in records)
    for region in said["regions"]:
        partition, end = region["partition"], ends[region["partition"]]
        lost = partition == made.lost_partition
        kafka = f"[{made.behind_loss if lost else 0}, {end})"
        assert (region["cut"], region["merged"]) == (end, made.merged[partition])
        assert (region["topic"], region["wal"], region["topic_with_wal"]) == (kafka, f"[0, {end})", kafka)
        assert (region["compared_from"], region["compared"]) == ("wal" if lost else "topic", f"[0, {end})")
        assert region["from_the_beginning"] is True
        assert len(region["accepted_losses"]) == lost
    assert sum(region["rejected"] for region in said["regions"]) == 3 * len(BAD)


def test_a_topic_without_its_beginning_says_what_is_not_covered(made: Made) -> None:
    report = verify(made, sources="topic")
    assert report.equal, report_text(report)
    history = made.world.feed.history
    touched = {
        record.key
        for partition, offsets in history.records.items()
        for offset, record in offsets.items()
        if record is not None and (partition != made.lost_partition or offset >= made.behind_loss)
    }
    now = history.fold(history.ends)
    assert report.rows_unchecked == len(now.keys() - touched) > 0
    (region,) = (r for r in report.regions if r.partition == made.lost_partition)
    assert (region.from_the_beginning, region.wal, region.topic_with_wal) == (False, "", "")
    assert "Kafka has deleted" in region.why_not


def test_the_wal_alone_needs_no_kafka(made: Made) -> None:
    without = {"LANCEWAL_KAFKA__BOOTSTRAP_SERVERS": ""}
    answer = run(made, "--from", "wal", "--output", "json", environment=without)
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["rows_unchecked"] == 0
    refused = run(made, environment=without).exception
    assert isinstance(refused, ActionNeeded)
    assert "--from wal" in str(refused)


def test_at_a_receipt(made: Made, copy: str) -> None:
    with steps_told() as steps:
        report = verify(made, at=made.earlier.to_json())
    assert report.equal, report_text(report)
    cut = positions(made.earlier)
    assert steps.one("reading the table").done == report.rows_read
    read = [step for step in steps.told if step.unit == "offsets"]
    kept = {region.partition for region in report.regions if region.topic != "nothing"}
    assert {int(step.what.rpartition("-")[2]) for step in read} == kept
    assert all(0 < step.done == step.total and step.asked.startswith("Kafka at 127.0.0.1:") for step in read)
    assert {"planning the read", "scanning the Lance table", "reading the WAL", "comparing"} <= {
        s.what for s in steps.told
    }
    assert report.rows_read == len(made.world.feed.history.fold(cut))
    assert {region.partition: region.cut for region in report.regions} == cut
    lance.dataset(copy).delete(where(merged_rows(made)[0]))
    assert verify(made, copy, at=replace(made.earlier, place=place_of(copy)).to_json()).equal
    assert not verify(made, copy).equal


def test_regions_and_samples_choose_the_same_keys_each_time(made: Made) -> None:
    history = made.world.feed.history
    now = history.fold(history.ends)
    parts = [verify(made, partitions=frozenset({partition})) for partition in range(PARTITIONS)]
    assert all(part.equal for part in parts)
    assert [len(part.regions) for part in parts] == [1] * PARTITIONS
    assert sum(part.rows_read for part in parts) == len(now)
    small, large = verify(made, fraction=0.2), verify(made, fraction=0.6)
    assert small.equal
    assert large.equal
    assert 0 < small.rows_read < large.rows_read < len(now)
    assert abs(verify(made, keys=40).keys - 40) < 30
    # As many keys are expected of all partitions as of each of them, taken together.
    of_each = [verify(made, keys=10, partitions=frozenset({partition})) for partition in range(PARTITIONS)]
    assert sum(10 / part.sample for part in of_each) == pytest.approx(10 / verify(made, keys=10).sample)


# -- what is damaged -------------------------------------------------------------------------------------------


def test_a_row_changed_by_hand(made: Made, copy: str) -> None:
    row = merged_rows(made)[3]
    lance.dataset(copy).update({"status": "'changed'", "count": "1"}, where=where(row))
    (found,) = only(verify(made, copy), "differs", hidden=1)
    assert (found.where, found.key) == ("merged table", key_of(row))
    assert (found.partition, found.offset) == offset_of(made, row)
    assert set(found.columns) == {"status", "count"}


def test_a_deletion_vector_that_hides_a_live_row(made: Made, copy: str) -> None:
    rows = merged_rows(made)[5:8]
    for row in rows:
        lance.dataset(copy).delete(where(row))
    report = verify(made, copy)
    found = only(report, "missing", hidden=3)
    assert [f.key for f in sorted(found, key=lambda f: str(f.key))] == sorted(map(key_of, rows), key=str)
    assert report.differences == 3
    dataset: Any = lance.dataset(copy)
    for finding in (f for f in report.findings if f.kind == "hidden"):
        assert finding.row is not None
        fragments = [dataset.get_fragment(finding.fragment)]
        physical = dataset.scanner(fragments=fragments, include_deleted_rows=True, with_row_id=True).to_table()
        assert key_of(physical.to_pylist()[finding.row]) == finding.key


def test_a_row_deleted_by_hand_and_compacted_away(made: Made, copy: str) -> None:
    row = merged_rows(made)[1]
    lance.dataset(copy).delete(where(row))
    lance.dataset(copy).optimize.compact_files(materialize_deletions_threshold=0.0)
    report = verify(made, copy)
    (found,) = only(report, "missing")
    assert found.key == key_of(row)
    assert "missing: 1" in report_text(report)


def test_a_key_appended_by_hand_is_a_duplicate(made: Made, copy: str) -> None:
    row = merged_rows(made)[2]
    append(copy, [row, {**row, "count": 5}])
    (found,) = only(verify(made, copy), "duplicate")
    assert (found.key, found.text) == (key_of(row), "3 rows, 2 as its records say")
    assert (found.partition, found.offset) == offset_of(made, row)


def test_a_deleted_key_that_is_there_and_a_foreign_row(made: Made, copy: str) -> None:
    history = made.world.feed.history
    later = {key for key, _ in history.fold(history.ends).items()}
    gone: Key = min(
        record.key
        for partition, offsets in history.records.items()
        for offset, record in offsets.items()
        if record is not None and record.key not in later and offset < made.merged[partition]
        and offset_of(made, record.columns)[1] < made.merged[partition]
    )  # fmt: skip
    append(copy, [user_row("customer-1", 999, "mine"), user_row(*gone, "back")])
    report = verify(made, copy)
    (found,) = only(report, "deleted", foreign=1)
    assert found.key == {"customer": gone[0], "id": gone[1]}
    (foreign,) = (f for f in report.findings if f.kind == "foreign")
    assert foreign.key == {"customer": "customer-1", "id": 999}
    assert report.differences == 1


def test_a_foreign_row_is_named_and_no_difference_unless_asked(made: Made, copy: str) -> None:
    append(copy, [user_row("customer-1", 999, "mine")])
    assert verify(made, copy).equal
    assert not verify(made, copy, foreign_rows_differ=True).equal
    # With a part of the records gone, nobody can say that none explains it.
    lost = verify(made, copy, sources="topic", foreign_rows_differ=True)
    assert lost.equal == (made.lost_partition == partition_of_customer(made, "customer-1"))


def test_the_exit_code_of_a_difference(made: Made, copy: str, tmp_path: Path) -> None:
    lance.dataset(copy).delete(where(merged_rows(made)[0]))
    place = tmp_path / "report.json"
    answer = run(made, "-t", copy, "--limit", "0", "--report", str(place))
    assert answer.exit_code == 1, answer.output
    assert answer.stdout.endswith("\n1 difference\n")
    said = json.loads(place.read_text())
    assert (said["equal"], said["differences"], said["findings"]) == (False, 1, [])


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (("--at", "{}"), "not a receipt"),
        (("--sample", "1.5"), "above 0 and up to 1"),
        (("--sample", "0.5", "--keys", "3"), "not both"),
        (("--partition", "17"), "'17': the table has topic"),
    ],
)
def test_what_cannot_be_asked(made: Made, asked: Sequence[str], text: str) -> None:
    refused = run(made, *asked).exception
    assert isinstance(refused, ActionNeeded)
    assert text in str(refused)


def run(made: Made, *arguments: str, environment: Mapping[str, str] | None = None) -> Result:
    """The command, in this process."""
    app = typer.Typer()
    app.command()(with_options(command))
    return CliRunner().invoke(app, [*arguments, "--config", str(made.world.lancewal.config)], env=environment)


# -- the WAL against the topic -----------------------------------------------------------------------------------


def test_a_segment_with_another_value(made: Made, copy: str) -> None:
    def other(rows: pa.RecordBatch) -> pa.RecordBatch:
        changed = [{**row, "count": 4711} if i == 1 else row for i, row in enumerate(rows.to_pylist())]
        return pa.RecordBatch.from_pylist(changed, rows.schema)

    key, entry = rewrite(copy, lambda entry: replace(entry, held=other(entry.rows)), made.lost_partition)
    (found,) = (f for f in verify(made, copy).findings if f.kind == "wal_differs")
    assert (found.partition, found.offset) == (entry.region.partition, entry.rows["_offset"][1].as_py())
    assert found.object == key
    assert "count" in found.columns


def test_a_segment_that_lacks_a_record(made: Made, copy: str) -> None:
    key, entry = rewrite(copy, lambda entry: replace(entry, held=entry.rows.slice(1)), made.lost_partition)
    (found,) = (f for f in verify(made, copy).findings if f.kind == "wal_lacks")
    assert (found.partition, found.offset, found.object) == (
        entry.region.partition, entry.rows["_offset"][0].as_py(), key,
    )  # fmt: skip


def test_a_segment_that_rejects_nothing(made: Made, copy: str) -> None:
    key, entry = rewrite(copy, lambda entry: replace(entry, rejected=()), made.lost_partition, rejected=True)
    found = only(verify(made, copy), "wal_rejects")
    assert [(f.partition, f.offset, f.object) for f in found] == [
        (entry.region.partition, rejected.offset, key) for rejected in entry.rejected
    ]


def test_a_segment_that_is_gone_or_cannot_be_read(made: Made, copy: str) -> None:
    """Of merged records: a read does not need it."""
    key, entry = rewrite(copy, lambda entry: entry, made.lost_partition)
    path = Path(copy) / key
    data = path.read_bytes()
    path.unlink()
    report = verify(made, copy)
    missing = [f for f in report.findings if f.kind == "wal_missing"]
    assert set(report.counts) == {"wal_missing"}
    assert (entry.region.partition, entry.first) in {(f.partition, f.offset) for f in missing}
    (region,) = (r for r in report.regions if r.partition == entry.region.partition)
    assert region.wal.startswith(f"[{entry.next}, ") or int(region.wal[1:].partition(",")[0]) > entry.next
    assert region.compared_from == "topic"
    path.write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    report = verify(made, copy)
    assert (report.equal, report.counts) == (True, {"wal_held": 1}), report_text(report)
    (damaged,) = report.findings
    assert damaged.object == key
    assert "Its rows are held by the table: nothing is lost" in damaged.text


def files(uri: str) -> dict[Path, tuple[int, int]]:
    """Every file of the table, its size and the time of its last change."""
    found = (path for path in Path(uri).rglob("*") if path.is_file())
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def append(uri: str, rows: Sequence[Row]) -> None:
    schema = lance.dataset(uri).schema
    lance.write_dataset(pa.Table.from_pylist([dict(row) for row in rows], schema), uri, mode="append")


def segments(uri: str) -> Iterator[tuple[str, Path, Segment]]:
    for path in sorted((Path(uri) / "_lancewal" / "wal").rglob("*.arrow")):
        key = str(path.relative_to(uri))
        assert parse_wal_segment(key) is not None
        decoded = decode_segment(path.read_bytes(), key)
        if isinstance(decoded, Segment):
            yield key, path, decoded


def rewrite(uri: str, change: Callable[[Entry], Entry], not_of: int, *, rejected: bool = False) -> tuple[str, Entry]:
    """Change one entry with rows (and with rejected records) of the first log, and store the segment in its place."""
    first = min(segments(uri), key=lambda found: found[2].written_at_ms)[2].log
    for key, path, segment in segments(uri):
        for at, entry in enumerate(segment.entries):
            if segment.log != first or entry.region.partition == not_of or entry.rows.num_rows < 3:
                continue
            if rejected and not entry.rejected:
                continue
            entries = (*segment.entries[:at], change(entry), *segment.entries[at + 1 :])
            path.write_bytes(encode_segment(replace(segment, entries=entries), entry.rows.schema))
            return key, entry
    raise AssertionError("no such entry")


def partition_of_customer(made: Made, customer: str) -> int:
    return next(
        partition
        for partition, offsets in made.world.feed.history.records.items()
        for record in offsets.values()
        if record is not None and record.key[0] == customer
    )
