"""Avro keys of a schema registry, from a real producer to every way to read; the schema of keys changes in between."""

from __future__ import annotations

import io
import json
import re
import zlib
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
from tests.support.stub_registry import serving
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, until
from tests.whole_path.test_repairs import in_the_midst
from tests.whole_path.test_where_records_stop import page

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PARTITIONS = 3
ID = {"name": "id", "type": "string"}
KEYS = {7: {"type": "record", "name": "K7", "fields": [ID]}, 17: {"type": "record", "name": "K17", "fields": [ID]}}
VALUE = {"type": "record", "name": "V", "fields": [ID, {"name": "n", "type": "long"}]}


def framed(number: int, schema: Any, datum: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), datum)
    return b"\0" + number.to_bytes(4) + data.getvalue()


def key_of(name: str, schema: int) -> bytes:
    return framed(schema, KEYS[schema], {"id": name})


def partition_of(name: str, schema: int = 7) -> int:
    """By librdkafka's default partitioner."""
    return zlib.crc32(key_of(name, schema)) % PARTITIONS


STAYING = [name for name in (f"k{n}" for n in range(300)) if partition_of(name) == partition_of(name, 17)]
"""Keys that another schema leaves in their partition."""


class Feed:
    """A producer that knows which rows are right."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer, self._topic = Producer({"bootstrap.servers": servers}), topic
        self.rows: dict[str, int] = {}

    def send(self, name: str, n: int | None, schema: int = 7, *, counts: bool = True) -> None:
        """A row, or a delete without a value; it ``counts`` unless somebody rejects it."""
        value = None if n is None else framed(8, VALUE, {"id": name, "n": n})
        self._producer.produce(self._topic, value, key_of(name, schema))
        assert self._producer.flush(30) == 0
        if not counts:
            return
        if n is None:
            self.rows.pop(name, None)
        else:
            self.rows[name] = n


def lancewal_at(kafka: KafkaBroker, topic: str, folder: Path, registry: str) -> Lancewal:
    tree: dict[str, dict[str, object]] = {
        "table": {
            "uri": str(folder / "table"),
            "topic": topic,
            "columns": {"id": "string", "n": "int64"},
            "primary_key": ["id"],
            "region_key": ["id"],
            "partitioner": "crc32",
            "format": {"key": "avro", "value": "avro"},
            "history_window_s": 3600,
        },
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "registry": {"url": registry},
        "ingest": {"linger_ms": 10, "seal_rows": 100_000, "seal_age_s": 600},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    return Lancewal(folder, tree)


def seen(lancewal: Lancewal, **read: Any) -> dict[str, int]:
    rows = open_table(str(lancewal.folder / "table")).to_arrow(**read).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["n"] for row in rows}


def test_keys_whose_schema_changes(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> None:
    make_topics(kafka.bootstrap_servers, {topic_name: PARTITIONS, f"{topic_name}.dead-letters": 1})
    feed = Feed(kafka.bootstrap_servers, topic_name)
    with serving() as server:
        lancewal = lancewal_at(kafka, topic_name, tmp_path, server.url)
        for number, schema in {**KEYS, 8: VALUE}.items():
            server.has(f"/schemas/ids/{number}", json.dumps(schema))
        feed.send(STAYING[0], 0)
        settings = read_settings(lancewal.config)
        assert "1 of the newest 1 record would be rows" in newest_records(settings)
        assert "schemas: that of the first record" in str(create_table_and_show(lancewal))
        ingest = lancewal.start("ingest", "run")
        for number, name in enumerate(STAYING[:20]):
            feed.send(name, number)
        for name in STAYING[3:6]:
            feed.send(name, None)
        until(lambda: seen(lancewal) == feed.rows, lambda: ingest.tail)
        assert "schemas: id-7" in lancewal.succeed("table", "show")

        before = dict(feed.rows)
        one = STAYING[0]
        other = next(name for name in STAYING[:20] if partition_of(name) != partition_of(one))
        feed.send(one, 100, 17)
        feed.send(other, 50, 17, counts=False)
        feed.send(other, None, 17)
        assert "Record keys of 2 schemas (id-17, id-7)" in newest_records(settings)
        stopped = {partition_of(name) for name in (one, other)}
        port = ingest.logged("service_started")[0]["port"]
        until(lambda: stops(page(port)) == dict.fromkeys(stopped, "key_form_changed"), lambda: page(port))
        third = next(name for name in STAYING if partition_of(name) not in stopped)
        feed.send(third, 5)
        before[third] = 5
        until(lambda: seen(lancewal) == before, lambda: ingest.tail)
        (said,) = [shown for shown in page(port)["partitions"] if shown["partition"] == partition_of(other)]
        place = re.search(r"`lancewal offset reject (\S+)`", said["diagnosis"]["message"])
        assert place is not None
        lancewal.succeed("offset", "reject", place[1])
        lancewal.succeed("table", "alter", "--key-form", "17")
        until(lambda: seen(lancewal) == feed.rows, lambda: ingest.tail)
        ingest.stop()

    has_no_registry = lancewal.start("ingest", "run")
    for number, name in enumerate(STAYING[10:16]):
        feed.send(name, 1000 + number if number else None, 7 if number % 2 else 17)
    until(lambda: seen(lancewal) == feed.rows, lambda: has_no_registry.tail)
    uri = tmp_path / "table"
    segment = in_the_midst(str(uri)).relative_to(uri).as_posix()
    (uri / segment).write_bytes((uri / segment).read_bytes()[:-FOOTER_SIZE])
    lancewal.succeed("repair", "segment", segment)
    assert seen(lancewal) == feed.rows
    has_no_registry.stop()
    lancewal.succeed("merge")
    assert seen(lancewal, consistency="eventual") == feed.rows
    lancewal.succeed("verify")


def stops(shown: Any) -> dict[int, str]:
    kinds = {one["partition"]: one["diagnosis"]["kind"] for one in shown["partitions"]}
    return {partition: kind for partition, kind in kinds.items() if kind == "key_form_changed"}


def create_table_and_show(lancewal: Lancewal) -> str:
    create_table(read_settings(lancewal.config))
    return lancewal.succeed("table", "show")
