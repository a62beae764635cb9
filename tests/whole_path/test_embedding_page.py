"""The programs and commands of docs/how-to/add-an-embedding-column.md, in their order, on real services and a real broker."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest
import yaml
from confluent_kafka import Producer

from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.table import open_table
from tests.public.test_commands_as_written import written
from tests.public.test_public_names import programs
from tests.support.topics import make_topics
from tests.support.whole_path import Lancewal, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "add-an-embedding-column.md"
ADDRESS, BROKER, TOPIC = "s3://bucket/notices", "broker:9092", '"notices"'
PATCHES, COLUMN, PASSES = programs(PAGE.read_text(encoding="utf-8"))
ADD, PAUSE, RESUME, ADOPT = (
    command for command in written(PAGE.read_text(encoding="utf-8")) if not command.startswith("verify")
)


class Notices:
    """The table of the page, with ingest and flusher at work, and a dict of the bodies that it must have."""

    def __init__(self, kafka: KafkaBroker, topic: str, folder: Path) -> None:
        self.servers, self.topic, self.uri = kafka.bootstrap_servers, topic, str(folder / "table")
        make_topics(self.servers, {topic: 2, f"{topic}.dead-letters": 1})
        (shown,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
        tree = yaml.safe_load(shown)
        tree["table"] |= {"uri": self.uri, "topic": topic}
        tree["kafka"]["bootstrap_servers"] = self.servers
        tree |= {"ingest": {"seal_age_s": 0.2}, "flusher": {"merge_interval_s": 0.2, "visibility_interval_s": 0}}
        tree["http"] = {"ingest_port": 0, "flusher_port": 0}
        self.lancewal = Lancewal(folder, tree)
        self.lancewal.succeed("table", "create")
        self.ingest = self.lancewal.start("ingest", "run")
        self.flusher = self.lancewal.start("flusher", "run")
        self.bodies: dict[tuple[str, int], str] = {}

    def produce(self, ids: range, word: str) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "partitioner": "murmur2_random"})
        for id in ids:
            region = f"r{id % 3}"
            self.bodies[region, id] = f"{word} {'x' * (id % 7)}"
            value = {"region": region, "id": id, "body": self.bodies[region, id]}
            producer.produce(self.topic, key=encode_region_key(region), value=json.dumps(value))
        assert producer.flush(60) == 0

    def run(self, program: str) -> None:
        code = program.replace(ADDRESS, self.uri).replace(BROKER, self.servers).replace(TOPIC, json.dumps(self.topic))
        exec(compile(code, PAGE.name, "exec"), {})

    def wait_merged(self, filled: bool = False) -> None:
        """Wait until the merged table has all bodies; ``filled``: and each has its vector."""

        def is_there() -> bool:
            rows = lance.dataset(self.uri).to_table().to_pylist()
            found = {(row["region"], row["id"]): row for row in rows}
            if {key: row["body"] for key, row in found.items()} != self.bodies:
                return False
            return not filled or all(row["embedding"] == vector(row["body"]) for row in found.values())

        until(is_there, lambda: self.lancewal.tails)

    def command(self, line: str) -> None:
        self.lancewal.succeed(*shlex.split(line))

    def check(self) -> None:
        """Strong reads show each body with its vector, and `lancewal verify` finds no difference."""
        rows = open_table(self.uri).to_arrow().to_pylist()
        assert {(row["region"], row["id"]): row["body"] for row in rows} == self.bodies
        assert all(row["embedding"] == vector(row["body"]) for row in rows)
        self.command("verify")


def vector(body: str) -> list[float]:
    return [float(len(body)), 0.0, 0.0, 1.0]


@pytest.fixture
def notices(kafka: KafkaBroker, topic_name: str, tmp_path: Path) -> Iterator[Notices]:
    made = Notices(kafka, topic_name, tmp_path)
    yield made
    for service in (made.ingest, made.flusher):
        service.stop()


def test_by_patches(notices: Notices) -> None:
    notices.produce(range(60), "old")
    notices.wait_merged()
    notices.command(ADD)
    notices.produce(range(40, 70), "new")
    until(lambda: len(open_table(notices.uri).to_arrow()) == 70, lambda: notices.lancewal.tails)
    notices.run(PATCHES)
    notices.wait_merged(filled=True)
    notices.produce(range(10), "newer")
    notices.wait_merged()
    notices.run(PATCHES)  # the rows that came meanwhile
    notices.wait_merged(filled=True)
    notices.check()


def test_by_a_job_and_adopted(notices: Notices) -> None:
    notices.produce(range(60), "old")
    notices.wait_merged()
    notices.run(COLUMN)
    until(lambda: bool(notices.flusher.logged("foreign_columns_seen")), lambda: notices.lancewal.tails)
    notices.produce(range(40, 70), "new")
    notices.run(PASSES)
    notices.wait_merged()
    notices.run(PASSES)  # the rows that came meanwhile
    notices.wait_merged(filled=True)
    notices.check()
    assert "of other programs: embedding" in notices.lancewal.run("status").out
    notices.command(ADOPT)
    assert "of other programs" not in notices.lancewal.run("status").out
    producer = Producer({"bootstrap.servers": notices.servers, "partitioner": "murmur2_random"})
    own = {"region": "r0", "id": 0, "embedding": [9.0, 9.0, 9.0, 9.0]}
    patch: list[tuple[str, str | bytes | None]] = [("lancewal.op", "patch")]
    producer.produce(notices.topic, key=encode_region_key("r0"), value=json.dumps(own), headers=patch)
    producer.flush(60)

    def patched() -> bool:
        (row,) = lance.dataset(notices.uri).to_table(filter="region = 'r0' AND id = 0").to_pylist()
        return bool(row["embedding"] == own["embedding"])

    until(patched, lambda: notices.lancewal.tails)


def test_by_a_function_while_the_flusher_is_paused(notices: Notices) -> None:
    notices.produce(range(30), "old")
    notices.wait_merged()
    notices.command(PAUSE)
    notices.produce(range(20, 40), "new")
    until(lambda: len(open_table(notices.uri).to_arrow()) == 40, lambda: notices.lancewal.tails)
    field = pa.field("embedding", pa.list_(pa.float32(), 4))

    @lance.batch_udf(output_schema=pa.schema([field]))
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        vectors = pa.array(map(vector, batch["body"].to_pylist()), field.type)
        return pa.record_batch([vectors], schema=pa.schema([field]))

    lance.dataset(notices.uri).add_columns(compute, read_columns=["body"])
    notices.command(RESUME)
    notices.wait_merged()
    rows = {row["id"]: row["embedding"] for row in lance.dataset(notices.uri).to_table().to_pylist()}
    assert rows == {id: vector(f"old {'x' * (id % 7)}") if id < 20 else None for id in range(40)}
