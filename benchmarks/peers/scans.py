"""Row c: reads of a table after rounds of upserts, before and after compaction, by plain Lance.

Against the same rows freshly written, and against an equal table after ``merge_insert`` of the same rounds; also against
LakeSoul's own reader, if it is among the peers.  *Full*: all columns of all rows into an Arrow table.  *Aggregate*: a
streamed scan of two columns, summed; it is compared with the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.keyed_rows import Base, Upserts
from benchmarks.merge_runs import Pair
from benchmarks.peers.engines import Engine
from benchmarks.peers.measure import Aim, Measured
from benchmarks.peers.remote import RemotePeer
from benchmarks.peers.sizes import Sizes, as_parquet, write_round
from benchmarks.plain_lance import Kind, plain_lance, write_fresh
from benchmarks.spent import Spent
from benchmarks.upserted_table import UpsertedTable, copy_table

RUNS = 15
AIM, COMPACTED_AIM = Aim("at most", 1.5), Aim("at most", 1.1)
TEXTS: Mapping[Kind, str] = {"full": "all columns", "aggregate": "two columns, summed"}
OURS, FRESH, MERGE_INSERT = "ours", "fresh Lance table", "Lance after merge_insert"

Reads = Mapping[str, Callable[[Kind], Spent]]
"""By whose table it is; the argument is the kind of read."""


def against_lance(base: Base, folder: Path, sizes: Sizes) -> Iterator[Measured]:
    """Against a fresh table and ``merge_insert``."""
    pair = Pair.of(base, folder / "pair", 13)
    try:
        pair.runs(sizes.round_rows, sizes.rounds)
        pair.check()
        path, model = pair.ours.path, pair.upserts.model
        fresh = folder / "fresh"
        write_fresh(path, fresh)
        with plain_lance() as reader:
            reads = {
                OURS: lambda kind: reader.scan(path, kind, model),
                FRESH: lambda kind: reader.scan(fresh, kind, model),
                MERGE_INSERT: lambda kind: reader.scan(pair.peer.path, kind, model),
            }
            yield from _before_and_after(reads, pair.ours, sizes)
    finally:
        pair.ours.close()


def against_peer(base: Base, folder: Path, sizes: Sizes, engine: Engine) -> Iterator[Measured]:
    """Against the native reader of a peer."""
    upserts = Upserts(base, 14)
    with RemotePeer(engine, folder / "peer") as peer:
        peer.create(as_parquet(base))
        ours = UpsertedTable(copy_table(base.table, folder / "ours"))
        try:
            for _ in range(sizes.rounds):
                rows = upserts.batch(sizes.round_rows)
                ours.seal(rows)
                ours.flush()
                ours.merge()
                peer.upsert(write_round(rows, folder))
            peer.check(upserts.model)
            with plain_lance() as reader:
                reads = {
                    OURS: lambda kind: reader.scan(ours.path, kind, upserts.model),
                    peer.name: lambda kind: peer.scan() if kind == "full" else peer.aggregate()[1],
                }
                yield from _before_and_after(reads, ours, sizes)
        finally:
            ours.close()


def _before_and_after(reads: Reads, ours: UpsertedTable, sizes: Sizes) -> Iterator[Measured]:
    after = f"after {sizes.rounds} rounds of {sizes.round_rows:,} into {sizes.rows:,}"
    yield from _lines(reads, after, AIM)
    cpu, wall = time.process_time(), ours.compact_all()
    print(f"   compaction: {wall:.1f} s, {time.process_time() - cpu:.1f} s of the CPUs", flush=True)
    yield from _lines(reads, f"{after}, ours compacted", COMPACTED_AIM)


def _lines(reads: Reads, name: str, aim: Aim) -> Iterator[Measured]:
    for kind, text in TEXTS.items():
        spent: dict[str, list[Spent]] = {whose: [] for whose in reads}
        for _ in range(RUNS):
            for whose, read in reads.items():
                spent[whose].append(read(kind))
        for whose in [whose for whose in reads if whose != OURS]:
            aimed = aim if whose == FRESH else None
            yield Measured.of_times("c", f"{text}, {name}", whose, spent[OURS], spent[whose], aimed)
