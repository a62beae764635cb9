"""Topics of producers with other keys and other partitioners: from a real producer to every way to read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from lancewal import encode_region_key
from lancewal_core.cli.options import read_settings
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

IDS = [*range(-40, 40), -(2**63), 2**63 - 1]


def lancewal_at(kafka: KafkaBroker, topic: str, folder: Path, **table: object) -> Lancewal:
    folder.mkdir()
    tree: dict[str, dict[str, object]] = {
        "table": {
            "uri": str(folder / "table"),
            "topic": topic,
            "columns": {"id": "int64", "status": "string"},
            "primary_key": ["id"],
            "region_key": ["id"],
            **table,
        },
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "ingest": {"linger_ms": 10, "seal_age_s": 0.5},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    lancewal = Lancewal(folder, tree)
    create_table(read_settings(lancewal.config))
    return lancewal


def test_long_keys_of_librdkafkas_default(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> None:
    """Eight bytes, CRC32, and deletes without a value.  A table that expects murmur2 stops, and names crc32."""
    make_topics(kafka.bootstrap_servers, {topic_name: 5, f"{topic_name}.dead-letters": 1})
    right = lancewal_at(kafka, topic_name, tmp_path / "right", format={"key": "long"}, partitioner="crc32")
    wrong = lancewal_at(kafka, topic_name, tmp_path / "wrong", format={"key": "long"})
    loose = lancewal_at(kafka, topic_name, tmp_path / "loose", format={"key": "long"}, partitioner="none")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    expected = {}
    for turn in range(2):
        for number in IDS:
            expected[number] = f"{number} in turn {turn}"
            value = json.dumps({"id": number, "status": expected[number]}).encode()
            producer.produce(topic_name, value, number.to_bytes(8, "big", signed=True))
        for number in IDS[turn::7]:
            del expected[number]
            producer.produce(topic_name, None, encode_region_key(number, form="long"))
        assert producer.flush(30) == 0
    for lancewal in (right, loose):
        ingest = lancewal.start("ingest", "run")
        until(lambda at=lancewal: seen(at) == expected, lambda of=ingest: of.tail)  # type: ignore[misc]  # bound now
        ingest.stop()
        lancewal.succeed("merge")
        assert seen(lancewal, consistency="eventual") == expected
        lancewal.succeed("verify")

    table = open_table(str(tmp_path / "right" / "table"))
    assert table.get([7], region_key=7).to_arrow().to_pylist() == [{"id": 7, "status": expected[7]}]
    ingest = wrong.start("ingest", "run")
    until(lambda: any("lie where crc32 puts them" in line for line in ingest.log.splitlines()), lambda: ingest.tail)
    ingest.stop()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic_name, 6)])[topic_name].result(timeout=30)
    for command in (["table", "alter", "--partitions", "6"], ["ingest", "run"]):
        answer = loose.run(*command)
        assert answer.code == 2
        assert "has 6 partitions, the table's contract says 5. With `table.partitioner: none`" in answer.err


def seen(lancewal: Lancewal, **read: object) -> dict[int, str]:
    rows = open_table(str(lancewal.folder / "table")).to_arrow(**read).to_pylist()  # type: ignore[arg-type]
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["status"] for row in rows}
