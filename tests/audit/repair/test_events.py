"""``lancewal repair`` and ``lancewal verify`` on a table of change events: records are read again as ingest has read them.

Between the rows lie records that are passed over, tombstones with and without their delete, and values that were left out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import lance
import pytest

from lancewal_core.errors import ObjectCorrupt, ObjectMissing
from lancewal_core.settings.sections import PLACEHOLDER
from lancewal_reader.table import open_table
from tests.audit.repair.test_segment import MemoryRecords, damage, goes_on, middle, repair
from tests.audit.verify.records.test_wal import verify
from tests.support.pipeline import Pipeline
from tests.support.repairs import check_strong

HEARTBEAT = b'{"ts_ms":1700000000000}'
BEGIN = b'{"status":"BEGIN","id":"1:2","ts_ms":1,"event_count":null,"data_collections":null}'
TERMS: dict[str, Any] = {"region_key": ("region", "id"), "key_format": "json-compact", "envelope": "debezium"}


def event(op: str, after: object) -> bytes:
    source = {"ts_ms": 1, "lsn": 1}
    return json.dumps({"before": None, "after": after, "source": source, "op": op}, separators=(",", ":")).encode()


class Connector:
    """Writes what a connector writes into the topic of a pipeline, and folds it into the oracle."""

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self._pipeline = pipeline
        self._rng = random.Random(f"connector {seed}")

    def write(self, count: int) -> None:
        rng, oracle = self._rng, self._pipeline.oracle
        for _ in range(count):
            place = f"r{rng.randrange(6)}", rng.randrange(12)
            row = {"region": place[0], "id": place[1], "a": rng.randrange(100), "s": f"s{rng.randrange(100)}"}
            match rng.choice("ccrruukkddh"):
                case "k" if place in oracle:  # the source has changed the column a, and left the large one out
                    self._send(place, event("u", {**row, "s": PLACEHOLDER}))
                    oracle[place] = {**oracle[place], "a": row["a"]}
                case "d":
                    delete = event("d", None)
                    for value in rng.choice(
                        [(delete, None), (delete,), (None,)]
                    ):  # compaction leaves the tombstone alone
                        self._send(place, value)
                    oracle.pop(place, None)
                case "h":
                    beside = cast(
                        "list[tuple[bytes, bytes, str]]", [(b"{}", HEARTBEAT, "upsert"), (b"", BEGIN, "upsert")]
                    )
                    self._pipeline._messages[0] += rng.choices(beside, k=rng.randrange(1, 4))
                case op:
                    self._send(place, event(op if op in "cru" else "c", row))
                    oracle[place] = row

    def _send(self, place: tuple[str, int], value: bytes | None) -> None:
        key = json.dumps({"region": place[0], "id": place[1]}, separators=(",", ":")).encode()
        partition = self._pipeline.contract.partition_of(key)
        self._pipeline._messages[partition].append((key, cast("bytes", value), "upsert"))


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, partitions=2, seed=3, seal_rows=10_000, batch=12, **TERMS)
    yield made
    made.close()


@pytest.fixture
def connector(pipeline: Pipeline, seed: int) -> Connector:
    """Merged rows, and an OPEN generation of each region with many entries."""
    made = Connector(pipeline, seed)
    made.write(80)
    pipeline.merge_all()
    for _ in range(6):
        made.write(25)
        pipeline.ingest()
    return made


@pytest.mark.parametrize(("how", "another"), [("lost", True), ("its rows", False)])
def test_a_lost_segment_comes_from_the_events_again(
    pipeline: Pipeline, connector: Connector, how: str, another: bool
) -> None:
    check_strong(pipeline)
    path = middle(pipeline)
    damage(path, how)
    with pytest.raises((ObjectCorrupt, ObjectMissing), match="lancewal repair segment"):
        open_table(pipeline.uri).to_arrow()
    topic = MemoryRecords(pipeline)
    assert repair(pipeline, path, topic)
    assert topic.asked
    check_strong(pipeline)
    goes_on(pipeline, another=another, write=connector.write)


def test_verify_finds_the_table_equal_and_a_changed_row(pipeline: Pipeline, connector: Connector) -> None:
    found = verify(pipeline)
    assert found.equal
    assert found.rows_read == len(pipeline.oracle)
    pipeline.merge_all()
    assert verify(pipeline).equal
    kept = next(iter(pipeline.oracle))
    lance.dataset(pipeline.uri).update({"a": "a + 1000"}, where=f"region = '{kept[0]}' and id = {kept[1]}")
    assert not verify(pipeline).equal
