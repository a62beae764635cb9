"""Avro of a schema registry, from a real producer to every way to read; after the first look the registry is away."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

from lancewal_core.cli.options import read_settings
from lancewal_core.wal.segment import FOOTER_SIZE
from lancewal_demo.stack import KafkaBroker
from lancewal_ingest.commands.topic_sample import newest_records
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.support.stub_registry import StubRegistry, serving
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, until
from tests.whole_path.test_repairs import in_the_midst
from tests.whole_path.test_where_records_stop import page

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

Row = dict[str, Any]
UNAVAILABLE = (503, b'{"error_code": 50301, "message": "starting"}')


def schema_of(number: int) -> str:
    """The schema with this number.  Number 8 has the field ``more`` besides."""
    fields = [
        {"name": "id", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
    ]
    more = [{"name": "more", "type": ["null", "int"], "default": None}] if number == 8 else []
    return json.dumps({"type": "record", "name": f"R{number}", "fields": [*fields, *more]})


def payload(number: int, row: Row) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(schema_of(number))), row)
    return data.getvalue()


def lancewal_at(kafka: KafkaBroker, topic: str, folder: Path, registry: str) -> Lancewal:
    tree: dict[str, dict[str, object]] = {
        "table": {
            "uri": str(folder / "table"),
            "topic": topic,
            "columns": {"id": "string", "n": "int64", "note": "string"},
            "primary_key": ["id"],
            "region_key": ["id"],
            "partitioner": "crc32",
            "format": {"value": "avro"},
            "on_unknown_column": "add",
            "on_unknown_schema": "dead-letter",
            "history_window_s": 3600,
        },
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "registry": {"url": registry},
        "ingest": {"linger_ms": 10, "seal_rows": 100_000, "seal_age_s": 600},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    return Lancewal(folder, tree)


class Feed:
    """A producer that knows which rows are right."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer, self._topic = Producer({"bootstrap.servers": servers}), topic
        self.rows: dict[str, Row] = {}

    def send(self, number: int, schema: int, *, counts: bool = True) -> None:
        row: Row = {"id": f"k{number % 40}", "n": number, "note": f"by {schema}", "more": None}
        if schema == 8:
            row["more"] = -number
        frame = b"\0" + schema.to_bytes(4)
        self._producer.produce(self._topic, frame + payload(schema, row), row["id"])
        assert self._producer.flush(30) == 0
        if counts:
            self.rows[row["id"]] = row


def seen(lancewal: Lancewal, **read: Any) -> dict[str, Row]:
    rows = open_table(str(lancewal.folder / "table")).to_arrow(**read).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: {"more": None, **row} for row in rows}


def has(server: StubRegistry, number: int) -> None:
    server.has(f"/schemas/ids/{number}", schema_of(number))


def test_rows_of_a_registry_s_values(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> None:
    make_topics(kafka.bootstrap_servers, {topic_name: 3, f"{topic_name}.dead-letters": 1})
    feed = Feed(kafka.bootstrap_servers, topic_name)
    with serving() as server:
        lancewal = lancewal_at(kafka, topic_name, tmp_path, server.url)
        has(server, 7)
        feed.send(0, 7)
        settings = read_settings(lancewal.config)
        assert "1 of the newest 1 record would be rows" in newest_records(settings)
        create_table(settings)
        ingest = lancewal.start("ingest", "run")
        for number in range(1, 60):
            feed.send(number, 7)
        until(lambda: seen(lancewal) == feed.rows, lambda: ingest.tail)

        before_columns = frozenset((tmp_path / "table" / "_lancewal" / "wal").rglob("*.arrow"))
        server.answers["/schemas/ids/8"] = UNAVAILABLE
        before = seen(lancewal)
        feed.send(1001, 8)
        port = ingest.logged("service_started")[0]["port"]
        stop = {"step": "decoded", "kind": "registry_unavailable"}
        until(
            lambda: stop in [{n: one["diagnosis"][n] for n in stop} for one in page(port)["partitions"]],
            lambda: page(port),
        )
        (waits,) = [one for one in page(port)["partitions"] if one["diagnosis"]["kind"] == stop["kind"]]
        assert "id-8" in waits["diagnosis"]["message"]
        assert "HTTP status 503" in waits["diagnosis"]["message"]
        other = next(n for n in range(1002, 1040) if kafka_partition(n) != kafka_partition(1001))
        feed.send(other, 7)
        until(lambda: seen(lancewal).get(f"k{other % 40}") == feed.rows[f"k{other % 40}"], lambda: ingest.tail)
        assert seen(lancewal)[f"k{1001 % 40}"] == before[f"k{1001 % 40}"]
        has(server, 8)
        until(lambda: seen(lancewal) == feed.rows, lambda: ingest.tail)

        feed.send(2001, 9, counts=False)
        feed.send(2041, 7)
        until(lambda: seen(lancewal) == feed.rows, lambda: ingest.tail)
        ingest.kill()
        until(lambda: not ingest.running)

    has_no_registry = lancewal.start("ingest", "run")
    for number in range(3000, 3020):
        feed.send(number, 7 + number % 2)
    until(lambda: seen(lancewal) == feed.rows, lambda: has_no_registry.tail)
    uri = tmp_path / "table"
    key = in_the_midst(str(uri), before_columns).relative_to(uri).as_posix()
    (uri / key).write_bytes((uri / key).read_bytes()[:-FOOTER_SIZE])
    lancewal.succeed("repair", "segment", key)
    assert seen(lancewal) == feed.rows
    has_no_registry.stop()
    lancewal.succeed("merge")
    assert seen(lancewal, consistency="eventual") == feed.rows
    lancewal.succeed("verify")
    assert "unknown_schema" in lancewal.succeed("dead-letter", "list")


def kafka_partition(number: int) -> int:
    """Partition of a row's key by librdkafka's default partitioner, of the three."""
    import zlib

    return zlib.crc32(f"k{number % 40}".encode()) % 3
