"""Row a: rounds of upserts through Kafka against MERGE in Spark.

lancewal is timed from the first ``produce`` until plain Lance can read the merged rows, with a real broker, the ingest
service and the flusher as processes.  This includes produce, broker, decoding JSON, WAL, flushes and merges, but not
making the JSON. A peer gets the same rows as a cached DataFrame, and is timed only for the upsert: no Kafka, no
decoding, no log.

 1. Round by round, in turns with the peer: lancewal waits until each round is merged before the next begins.
 2. In a stream: the rounds are produced without waiting until all are merged, into a new table each time.  This is
    compared with the median of the peer's rounds.  lancewal decides itself how many merges it makes.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.elapsed import Elapsed
from benchmarks.keyed_rows import Base, Upserts, check
from benchmarks.peers.engines import Engine
from benchmarks.peers.kafka_table import PARTITIONS, KafkaTable, messages_of
from benchmarks.peers.measure import Aim, Measured
from benchmarks.peers.remote import RemotePeer
from benchmarks.peers.sizes import WARM_UP_ROWS, WARM_UPS, Sizes, as_parquet, write_round
from benchmarks.upserted_table import copy_table
from lancewal_demo.stack import KafkaBroker

AIM = Aim("at least", 4)
SEAL_AGE_S = 0.5
"""What ages so is merged: most of a round in one merge, its rest in a second."""
ROUND_INTERVAL_S, STREAM_INTERVAL_S = 0.1, 0.5
"""Of the flusher: at once, and with more rows a merge."""
STREAMS = 5


def measure(base: Base, folder: Path, sizes: Sizes, engine: Engine, broker: KafkaBroker) -> Iterator[Measured]:
    upserts = Upserts(base, 12)
    with RemotePeer(engine, folder / "peer") as peer:
        peer.create(as_parquet(base))
        (folder / "ours").mkdir()
        table = copy_table(base.table, folder / "ours" / "table")
        seal_rows = sizes.round_rows // PARTITIONS
        topic = f"benchmark-{engine.name}"
        with KafkaTable(table, broker, topic, seal_rows, SEAL_AGE_S, ROUND_INTERVAL_S, peer.roots) as ours:
            _in_turns(ours, peer, upserts, WARM_UP_ROWS, WARM_UPS, folder)
            before = ours.version
            by_round, theirs = _in_turns(ours, peer, upserts, sizes.round_rows, sizes.rounds, folder)
            versions = ours.version - before
            check(table, upserts.model)
            peer.check(upserts.model)
            print(f"   {versions} table versions of ours in {sizes.rounds} rounds", flush=True)
            name = f"{sizes.rounds} rounds of {sizes.round_rows:,} into {sizes.rows:,} through Kafka"
            yield _rates(f"{name}, each merged before the next", peer.name, sizes, by_round, theirs, AIM)
        streams = [_stream(base, folder / f"stream-{n}", sizes, peer, broker, n) for n in range(STREAMS)]
        yield _rates(f"{name}, in a stream", peer.name, sizes, streams, theirs, AIM)


def _stream(base: Base, folder: Path, sizes: Sizes, peer: RemotePeer, broker: KafkaBroker, seed: int) -> Elapsed:
    """Of a round, on average, into a table of its own."""
    upserts = Upserts(base, seed)
    folder.mkdir()
    table = copy_table(base.table, folder / "table")
    topic = f"benchmark-{peer.name}-{folder.name}"
    with KafkaTable(table, broker, topic, sizes.round_rows // 2, SEAL_AGE_S, STREAM_INTERVAL_S, peer.roots) as ours:
        for _ in range(WARM_UPS):
            ours.upsert([messages_of(upserts.batch(WARM_UP_ROWS))])
        before = ours.version
        spent = ours.upsert([messages_of(upserts.batch(sizes.round_rows)) for _ in range(sizes.rounds)])
        print(f"   {ours.version - before} table versions of ours in a stream", flush=True)
        check(table, upserts.model)
    shutil.rmtree(folder)
    return Elapsed(spent.wall / sizes.rounds, spent.cpu / sizes.rounds)


def _in_turns(
    ours: KafkaTable, peer: RemotePeer, upserts: Upserts, count: int, rounds: int, folder: Path
) -> tuple[list[Elapsed], list[Elapsed]]:
    found: list[Elapsed] = []
    theirs: list[Elapsed] = []
    for _ in range(rounds):
        rows = upserts.batch(count)
        file, messages = write_round(rows, folder), messages_of(rows)
        found.append(ours.upsert([messages]))
        theirs.append(peer.upsert(file))
    return found, theirs


def _rates(
    measure: str, peer: str, sizes: Sizes, ours: list[Elapsed], theirs: list[Elapsed], aim: Aim | None
) -> Measured:
    median, fmean = statistics.median, statistics.fmean
    return Measured(
        "a", measure, peer, "rows/s",
        sizes.round_rows / median(s.wall for s in ours), sizes.round_rows / median(s.wall for s in theirs), aim,
        fmean(s.cpu for s in ours), fmean(s.cpu for s in theirs), len(ours),
    )  # fmt: skip
