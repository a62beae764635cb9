"""Peak resident memory of ingest over its budget, where records become far larger than what the topic takes for them.

Each case is a topic that is there before ingest starts, so that it comes as fast as it can be taken:

* ``compressed``: 2,500 records of 900 KB, of which zstd makes 170 KB in all.
* ``vectors``: 600 records of 1 MB, each with one vector of 90,000 floats.
* ``patches``: 300,000 patches of one number to a table with a vector of 1,536 floats.
* ``partitions``: 64 partitions at once, each with 20,000 rows of the common kind and 20 records of 900 KB in zstd.
* ``zstd_bomb``, ``lz4_bomb``: one batch of one record of 900 and 240 MB, in 1 MB or less.  The first is not read, and stops
  its partition; of the other the client knows no limit.
* ``tiny``: one batch of a million records of no bytes, in zstd; until 200,000 of them are durable, as dead letters.

The measured process is the service as production runs it, from the first consume until all is durable.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.ingest import AS_SERVICE
from benchmarks.workload import COLUMNS, upserts
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_demo.stack import KafkaBroker

BUDGET = 512 << 20
"""``ingest.memory_bytes_max``, its default."""
BESIDE = 300 << 20
"""What a process may take beside it."""
_BATCHES = {"linger.ms": 20, "batch.size": 1_000_000, "message.max.bytes": 2_000_000,
            "queue.buffering.max.kbytes": 256 << 10}  # fmt: skip
_ONE_BATCH = {"linger.ms": 60_000, "batch.size": 1_000_000_000, "message.max.bytes": 1_000_000_000,
              "batch.num.messages": 1_000_000, "queue.buffering.max.messages": 2_000_000,
              "queue.buffering.max.kbytes": 2_000_000}  # fmt: skip
_LARGE = "x" * 900_000
_VECTOR = 90_000
_SETS = 16
"""Different vectors: enough that no codec finds one again."""


@dataclass(frozen=True, slots=True)
class Record:
    region: str
    value: bytes
    op: str = "upsert"


@dataclass(frozen=True, slots=True)
class Case:
    partitions: int
    columns: Mapping[str, str]
    codec: str
    records: Callable[[], Iterator[Record]]
    enough: int | None = None
    """Position at which it ends, short of the end."""


def _compressed(count: int) -> Iterator[Record]:
    for n in range(count):
        region = f"region-{n % 997}"
        yield Record(region, f'{{"region":"{region}","id":{n},"pad":"{_LARGE}"}}'.encode())


def _vectors(count: int) -> Iterator[Record]:
    random = np.random.default_rng(1)
    texts = [",".join(f"{x:.8f}" for x in random.random(_VECTOR)) for _ in range(_SETS)]
    for n in range(count):
        region = f"region-{n % 997}"
        yield Record(region, f'{{"region":"{region}","id":{n},"v":[{texts[n % _SETS]}]}}'.encode())


def _patches(count: int) -> Iterator[Record]:
    for n in range(count):
        region = f"region-{n % 997}"
        yield Record(region, f'{{"region":"{region}","id":{n},"trip":{n}}}'.encode(), "patch")


def _partitions(rows: int, large: int) -> Iterator[Record]:
    for n, message in enumerate(upserts(rows, 10 * rows, 1)):
        yield Record(json.loads(message.value)["region"], message.value)
        if n % (rows // large) == 0:
            region = f"region-{n % 99_991}"
            yield Record(region, f'{{"region":"{region}","id":{-n},"pad":"{_LARGE}"}}'.encode())


def _bomb(nbytes: int) -> Iterator[Record]:
    yield Record("", b" " * nbytes)


_KEY = {"region": "string", "id": "int64"}
CASES = {
    "compressed": Case(4, {**_KEY, "pad": "string"}, "zstd", lambda: _compressed(2_500)),
    "vectors": Case(4, {**_KEY, "v": f"fixed_size_list<float32>[{_VECTOR}]"}, "lz4", lambda: _vectors(600)),
    "patches": Case(4, {**_KEY, "trip": "int64", "v": "fixed_size_list<float32>[1536]"}, "lz4",
                    lambda: _patches(300_000)),
    "zstd_bomb": Case(1, {**_KEY, "pad": "string"}, "zstd", lambda: _bomb(900_000_000)),
    "lz4_bomb": Case(1, {**_KEY, "pad": "string"}, "lz4", lambda: _bomb(240_000_000)),
    "tiny": Case(1, {**_KEY, "pad": "string"}, "zstd", lambda: repeat(Record("", b""), 1_000_000), enough=200_000),
    "partitions": Case(64, COLUMNS, "zstd", lambda: _partitions(64 * 20_000, 64 * 20)),
}  # fmt: skip


def run(*names: str) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    try:
        with KafkaBroker(folder / "kafka") as broker:
            result: dict[str, float] = {"memory_budget_mib": BUDGET / 2**20}
            for name in names or CASES:
                found = _measure(folder, broker.bootstrap_servers, name)
                result |= {f"{name}_{key}": figure for key, figure in found.items()}
                print(json.dumps(result), flush=True)
            return result
    finally:
        shutil.rmtree(folder)


def _measure(folder: Path, servers: str, name: str) -> dict[str, float]:
    case = CASES[name]
    topic = f"memory-{name}"
    _produce(servers, topic, case)
    table = folder / name
    command = [*AS_SERVICE, "benchmarks.memory_child", name, servers, topic, str(table), str(BUDGET)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed: {done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    shutil.rmtree(table)
    return {**found, "over_mib": found["peak_rss_mib"] - BUDGET / 2**20}


def _produce(servers: str, topic: str, case: Case) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for name, partitions in ((topic, case.partitions), (f"{topic}.dead-letters", 1)):
        admin.create_topics([NewTopic(name, partitions, 1, config={"max.message.bytes": "2000000"})])[name].result()
    producer = Producer(
        {"bootstrap.servers": servers, "partitioner": "murmur2_random", "compression.type": case.codec,
         **(_ONE_BATCH if case.partitions == 1 else _BATCHES)}
    )  # fmt: skip
    for record in case.records():
        headers: list[tuple[str, str | bytes | None]] | None
        headers = None if record.op == "upsert" else [("lancewal.op", record.op.encode())]
        while True:
            try:
                producer.produce(
                    topic, record.value, key=record.region and encode_region_key(record.region), headers=headers
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
