"""Spark reads tables in the servers of S3, Azure and Google Cloud Storage, beside services that work on them.

Services are real processes.  Spark is a program of its own, as people run it: it has the addresses in its options, and the
stores' options in the environment of driver and executors.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from lancewal_demo.stack import KafkaBroker, S3Server
from lancewal_demo.stack.clouds import AzureServer, GcsServer
from lancewal_reader.point.receipt import Receipt
from tests.support.spark import CONF, spark_environment
from tests.support.store_addresses import inside
from tests.whole_path.world import World, make_world, positions

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from lancewal.spark import receipt_of

builder = SparkSession.builder
for name, value in json.loads(sys.argv[2]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for uri in json.loads(sys.argv[1]):
    for consistency in ("strong", "eventual"):
        df = spark.read.format("lancewal").option("consistency", consistency).load(uri)
        print(json.dumps([uri, consistency, str(receipt_of(df)), df.toArrow().to_pylist()], default=repr))
"""


def test_ingested_merged_and_read(
    kafka: KafkaBroker, s3: S3Server, azure: AzureServer, gcs: GcsServer, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """Strong reads have all records, eventual ones those that are merged: both are the fold of what their receipts name."""
    worlds: dict[str, World] = {}
    with ExitStack() as stack:
        flushers = []
        for kind, server in (("s3", s3), ("az", azure), ("gs", gcs)):
            (folder := tmp_path / kind).mkdir()
            uri, options = inside(server, f"spark-{seed}", "one")
            topic = f"{topic_name}-{kind}"
            world = make_world(kafka, topic, folder, seed, uri=uri, options=options, in_process=True)
            stack.callback(world.lancewal.start("ingest", "run").stop)
            flushers.append(world.lancewal.start("flusher", "run"))
            world.feed.produce(150)
            worlds[uri] = world
        for world, flusher in zip(worlds.values(), flushers, strict=True):
            world.wait_caught_up("eventual")
            flusher.stop()
            world.feed.produce(60)
        for world in worlds.values():
            world.wait_caught_up()
        environment = spark_environment(tmp_path) | {"LANCEWAL_STORAGE__OPTIONS__ALLOW_HTTP": "true"}
        for server in (s3, azure, gcs):
            environment |= server.environment
        answer = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps([*worlds]), json.dumps(CONF)],
            env=environment, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert answer.returncode == 0, answer.stderr[-4000:]
    reads = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("[")]
    assert [(uri, consistency) for uri, consistency, *_ in reads] == [
        (uri, consistency) for uri in worlds for consistency in ("strong", "eventual")
    ]
    for uri, consistency, receipt, rows in reads:
        world, cut = worlds[uri], positions(Receipt.parse(receipt))
        world.compare(rows, cut, f"a {consistency} read of {uri} in Spark")
        merged = sum(cut.values()) < sum(world.feed.history.ends.values())
        assert merged == (consistency == "eventual")
