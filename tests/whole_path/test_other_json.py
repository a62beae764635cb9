"""JSON of producers that nobody configured, and columns of Kafka's metadata: from a real producer to every way to read.

The records are read again twice: by `repair segment`, and by `verify`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Message, Producer

from lancewal_core.cli.options import read_settings
from lancewal_core.wal.segment import FOOTER_SIZE
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.table import open_table
from lancewal_tables.define.create import create_table
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, until
from tests.whole_path.test_repairs import in_the_midst

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def lancewal_at(kafka: KafkaBroker, topic: str, folder: Path) -> Lancewal:
    tree: dict[str, dict[str, object]] = {
        "table": {
            "uri": str(folder / "table"),
            "topic": topic,
            "columns": {
                "id": "string",
                "at": {"type": "timestamp[us, UTC]", "json": "epoch_ms"},
                "total": {"type": "int64", "json": "number_text", "field": "total_amount"},
                "note": "string",
            },
            "metadata_columns": {
                "part": "kafka.partition",
                "place": "kafka.offset",
                "sent": "kafka.timestamp",
                "trace": {"source": "kafka.header.traceparent", "type": "string"},
            },
            "primary_key": ["id"],
            "region_key": ["id"],
            "partitioner": "crc32",
            "history_window_s": 3600,
        },
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "ingest": {"linger_ms": 10, "seal_rows": 100_000, "seal_age_s": 600},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    lancewal = Lancewal(folder, tree)
    create_table(read_settings(lancewal.config))
    return lancewal


class Feed:
    """A producer that counts which row of each key is right, from what the broker has acknowledged."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer, self._topic = Producer({"bootstrap.servers": servers}), topic
        self.rows: dict[str, Row] = {}

    def send(self, id_: str, value: Row, number: int, op: str = "upsert") -> None:
        headers = [("traceparent", b"old"), ("other", b"\xff"), ("traceparent", f"trace-{number}".encode())]
        acknowledged: list[Message] = []
        self._producer.produce(
            self._topic, json.dumps(value).encode(), id_, on_delivery=lambda _, message: acknowledged.append(message),
            headers=[*headers, ("lancewal.op", op.encode())], timestamp=1_700_000_000_000 + number,
        )  # fmt: skip
        assert self._producer.flush(30) == 0
        (message,) = acknowledged
        if op == "delete":
            self.rows.pop(id_, None)
            return
        metadata = {
            "part": message.partition(), "place": message.offset(), "trace": f"trace-{number}",
            "sent": EPOCH + timedelta(milliseconds=1_700_000_000_000 + number),
        }  # fmt: skip
        before = self.rows.get(id_, {}) if op == "patch" else {}
        row = {"id": id_, "at": before.get("at"), "total": before.get("total"), "note": before.get("note")}
        if "at" in value:
            row["at"] = EPOCH + timedelta(milliseconds=int(value["at"]))
        if "total_amount" in value:
            row["total"] = int(value["total_amount"])
        if "note" in value:
            row["note"] = value["note"]
        self.rows[id_] = {**row, **metadata}


def seen(lancewal: Lancewal, **read: Any) -> dict[str, Row]:
    rows = open_table(str(lancewal.folder / "table")).to_arrow(**read).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


def test_json_and_metadata_of_another_producer(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> None:
    make_topics(kafka.bootstrap_servers, {topic_name: 3, f"{topic_name}.dead-letters": 1})
    lancewal, feed = lancewal_at(kafka, topic_name, tmp_path), Feed(kafka.bootstrap_servers, topic_name)
    ingest = lancewal.start("ingest", "run")
    for turn in range(4):
        for number in range(turn * 30, turn * 30 + 30):
            id_ = f"k{number % 40}"
            whole = {"id": id_, "at": -1000.0 * number, "total_amount": str(number), "note": f"n{number}"}
            strict = {"id": id_, "at": number, "total_amount": number}
            match number % 6:
                case 0 | 1:
                    feed.send(id_, whole, number)
                case 2 | 3:
                    feed.send(id_, strict, number)
                case 4:
                    feed.send(id_, {"id": id_, "note": "patched"}, number, "patch")
                case 5:
                    feed.send(id_, whole, number, "delete" if number % 12 == 5 else "upsert")
        until(lambda: seen(lancewal) == feed.rows, lambda: ingest.tail)

    uri = tmp_path / "table"
    key = in_the_midst(str(uri)).relative_to(uri).as_posix()
    (uri / key).write_bytes((uri / key).read_bytes()[:-FOOTER_SIZE])
    lancewal.succeed("repair", "segment", key)
    assert seen(lancewal) == feed.rows
    ingest.stop()
    lancewal.succeed("merge")
    assert seen(lancewal, consistency="eventual") == feed.rows
    lancewal.succeed("verify")

    loaded = {"id": "loaded", "at": EPOCH, "total": 1, "note": None}
    schema = pa.schema(
        [("id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("total", pa.int64()), ("note", pa.string())]
    )
    pq.write_table(pa.Table.from_pylist([loaded], schema), tmp_path / "rows.parquet")
    lancewal.succeed("table", "load", str(tmp_path / "rows.parquet"))
    feed.rows["loaded"] = {**loaded, "part": None, "place": None, "sent": None, "trace": None}
    assert seen(lancewal) == feed.rows
    wrong = lance.dataset(uri).to_table()
    pq.write_table(wrong, tmp_path / "wrong.parquet")
    assert "holds Kafka's metadata: leave it out" in lancewal.run("table", "load", str(tmp_path / "wrong.parquet")).err
