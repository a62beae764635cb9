"""Compare ingest with its floor, over a real broker, from the first consume until the last row is durable, in one process.

The floor is a process with one thread that only calls ``consume(10000)`` and one ``pyarrow.json`` read of the joined
values.  Floor and ingest alternate, so that both run on the same machine state; ratios are of medians.

Peak resident memory is the largest of all runs.  In a further run a second member joins while the group is busy, and
leaves after some seconds; the larger peak of both members counts.

The kinds of records are ``upserts`` only, and ``mixed`` (70 % upserts, 25 % patches, some with explicit nulls, 5 %
deletes).
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.workload import Message, mixed, upserts
from lancewal_demo.stack import KafkaBroker

PARTITIONS = 4
KEYS = 3_000_000
BUDGET = 512 << 20
"""``ingest.memory_bytes_max`` of the measured runs."""
PLAIN = (sys.executable, "-m")
AS_SERVICE = (
    sys.executable,
    "-c",
    "import runpy, sys; from lancewal_ingest.glibc_heap import use_one_heap; use_one_heap(); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)",
)
"""A module run as ``lancewal ingest run`` begins: with one heap, before PyArrow is imported."""
NO_SNAPSHOTS = 8 << 30
"""Budget of the run without seals: all rows stay in memory."""
Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Prefilled:
    """A topic of a broker that has so many records."""

    servers: str
    topic: str
    rows: int


def run(rows: int = 5_000_000, runs: int = 3) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    try:
        with KafkaBroker(folder / "kafka") as broker:
            result: dict[str, float] = {"rows": rows, "runs": runs, "memory_budget_mib": BUDGET / 2**20}
            for kind, make in (("upserts", upserts), ("mixed", mixed)):
                result |= _measure(folder, broker.bootstrap_servers, kind, make, rows, runs)
            return result
    finally:
        shutil.rmtree(folder)


def _measure(
    folder: Path, servers: str, kind: str, make: Callable[[int, int, int], Iterator[Message]], rows: int, runs: int
) -> dict[str, float]:
    source = Prefilled(servers, f"benchmark-{kind}", rows)
    prefill(servers, source.topic, make(rows, KEYS, 1))
    floors: list[float] = []
    rates: list[float] = []
    bare: list[float] = []
    peaks: list[float] = []
    for n in range(runs):
        floors.append(child("floor", source, folder / "none", 0)["rows_per_s"])
        for seals, rates_of in ((True, rates), (False, bare)):
            if not seals and n > 0:
                continue  # for orientation: once is enough
            table = folder / f"{kind}-{n}-{seals}"
            found = child("ingest", source, table, BUDGET if seals else NO_SNAPSHOTS)
            rates_of.append(found["rows_per_s"])
            if seals:
                peaks.append(found["peak_rss_mib"])
            shutil.rmtree(table)
    both = _with_another_member(source, folder / f"{kind}-rebalanced")
    floor, rate = statistics.median(floors), statistics.median(rates)
    return {
        f"{kind}_floor_rows_per_s": floor,
        f"{kind}_rows_per_s": rate,
        f"{kind}_ratio": rate / floor,
        f"{kind}_without_snapshots_ratio": statistics.median(bare) / floor,
        f"{kind}_peak_rss_mib": max(peaks),
        f"{kind}_rebalanced_peak_rss_mib": max(both),
    }


def prefill(servers: str, topic: str, messages: Iterator[Message], more: Headers = ()) -> None:
    """Create the topic and produce all messages.  ``more``: headers that each of them has besides."""
    admin = AdminClient({"bootstrap.servers": servers})
    for name, partitions in ((topic, PARTITIONS), (f"{topic}.dead-letters", 1)):
        try:
            admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        except KafkaException as error:
            raise RuntimeError(f"could not create topic {name}: {error}") from error
    produce_all(servers, topic, messages, more)


def produce_all(servers: str, topic: str, messages: Iterator[Message], more: Headers = ()) -> None:
    """Produce all messages, and wait until they are acknowledged.  ``more`` is as with ``prefill``."""
    producer = Producer(
        {"bootstrap.servers": servers, "partitioner": "murmur2_random", "linger.ms": 50, "batch.size": 1_000_000,
         "compression.type": "lz4", "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    for n, message in enumerate(messages):
        headers: list[tuple[str, str | bytes | None]] | None
        headers = [*more] if message.op == "upsert" else [*more, ("lancewal.op", message.op.encode())]
        while True:
            try:
                producer.produce(topic, key=message.key, value=message.value, headers=headers or None)
                break
            except BufferError:
                producer.poll(0.1)
        if n % 50_000 == 0:
            producer.poll(0)
    producer.flush()


def _with_another_member(source: Prefilled, table: Path) -> tuple[float, float]:
    """Peaks in MiB of a member that stays, and of one that joins it while both have much to do."""
    with subprocess.Popen(_command("ingest", source, table, BUDGET), stdout=subprocess.PIPE) as stays:
        while stays.poll() is None and not any((table / "_lancewal").glob("**/*.arrow")):
            time.sleep(0.1)
        joins = child("join", source, table, BUDGET)
        said, _ = stays.communicate()
    stayed = _found(subprocess.CompletedProcess(stays.args, stays.returncode, said.decode(), "see above"))
    shutil.rmtree(table)
    return stayed["peak_rss_mib"], joins["peak_rss_mib"]


def child(act: str, source: Prefilled, table: Path, budget: int, values: Sequence[str] = ()) -> dict[str, float]:
    """Run the act in a process of its own.  ``values``: format of values, address of the registry, items of the column
    ``vector`` or an empty text, and envelope.  Plain JSON without them."""
    command = [*_command(act, source, table, budget), *values]
    return _found(subprocess.run(command, capture_output=True, text=True, check=False))


def _command(act: str, source: Prefilled, table: Path, budget: int) -> list[str]:
    return [
        *(AS_SERVICE if act != "floor" else PLAIN),
        "benchmarks.ingest_child",
        act,
        source.servers,
        source.topic,
        str(source.rows),
        str(table),
        str(budget),
    ]


def _found(done: subprocess.CompletedProcess[str]) -> dict[str, float]:
    if done.returncode != 0:
        raise RuntimeError(f"{done.args} failed: {done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
