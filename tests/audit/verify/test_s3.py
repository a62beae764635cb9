"""``lancewal verify`` of a table in an object store: the whole path over a real S3 server, and one row changed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_demo.stack import KafkaBroker, S3Server
from tests.whole_path.feed import Row
from tests.whole_path.world import World, make_world, positions

pytestmark = [pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(600)]


def test_a_table_in_s3(kafka: KafkaBroker, s3: S3Server, topic_name: str, tmp_path: Path, seed: int) -> None:
    world = make_world(
        kafka,
        topic_name,
        tmp_path,
        seed,
        uri=f"s3://{s3.bucket(f'verify-{seed}')}/tables/one",
        options={name.lower(): value for name, value in s3.environment.items()},
        table={"history_window_s": 3600, "grace_s": 600},
        ingest={"seal_age_s": 600},
    )
    world.feed.produce(200)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    ingest.stop()
    world.merge_all()
    merged = positions(world.check_merged())
    world.feed.produce(100)
    ingest = world.lancewal.start("ingest", "run")
    world.wait_caught_up()
    ingest.kill()

    code, report = verify(world, tmp_path)
    assert (code, report["counts"], report["sources"]) == (0, {}, "the topic and the WAL")
    assert report["records"] >= 300
    assert report["rows_read"] == len(world.feed.history.fold(world.feed.history.ends))
    assert all(region["from_the_beginning"] and region["topic_with_wal"] for region in report["regions"])

    row = merged_row(world, merged)
    where = f"customer = '{row['customer']}' and id = {row['id']}"
    lance.dataset(world.uri, storage_options=dict(world.options)).update({"status": "'by hand'"}, where=where)
    code, report = verify(world, tmp_path)
    assert (code, report["counts"]) == (
        1,
        {"differs": 1, "hidden": 1},
    )  # and the row as it was, below a deletion vector
    (found,) = (finding for finding in report["findings"] if finding["kind"] == "differs")
    assert (found["key"], found["columns"]) == ({"customer": row["customer"], "id": row["id"]}, ["status"])


def verify(world: World, folder: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `lancewal verify`."""
    place = folder / "report.json"
    answer = world.lancewal.run("verify", "--report", str(place))
    assert answer.code in (0, 1), (answer.out, answer.err)
    report: dict[str, Any] = json.loads(place.read_text())
    return answer.code, report


def merged_row(world: World, merged: dict[int, int]) -> Row:
    """One that no record behind the merged table touches."""
    history = world.feed.history
    later = {
        record.key
        for partition, offsets in history.records.items()
        for offset, record in offsets.items()
        if record is not None and offset >= merged[partition]
    }
    return next(row for key, row in sorted(history.fold(merged).items()) if key not in later)
