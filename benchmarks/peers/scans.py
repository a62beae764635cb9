"""Row c: reads of a table after rounds of upserts, before and after compaction, by lancewal's reader and by plain Lance.

Against the same rows freshly written, and an equal table after ``merge_insert`` of the same rounds, both scanned by plain
Lance; also against LakeSoul's own reader, if it is among the peers.  *Full*: all columns of all rows into an Arrow table.
*Aggregate*: a streamed scan of two columns, summed; it is compared with the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.elapsed import Elapsed
from benchmarks.keyed_rows import Base, Model, Upserts, check_sums
from benchmarks.merge_runs import Pair
from benchmarks.peers.engines import Engine
from benchmarks.peers.measure import Aim, Measured
from benchmarks.peers.remote import RemotePeer
from benchmarks.peers.sizes import Sizes, as_parquet, write_round
from benchmarks.table_scans import By, Kind, TableScans, table_scans, write_fresh
from benchmarks.upserted_table import UpsertedTable, copy_table

RUNS = 15
AIM, COMPACTED_AIM = Aim("at most", 1.5), Aim("at most", 1.1)
"""Of a read of all columns over a plain Lance scan of a fresh table."""
AHEAD = Aim("at most", 1.0)
TEXTS: Mapping[Kind, str] = {"full": "all columns", "aggregate": "two columns, summed"}
OURS: Mapping[str, By] = {"by lancewal": "lancewal", "by plain Lance": "Lance"}
FRESH, MERGE_INSERT = "fresh Lance table", "Lance after merge_insert"

Read = Callable[[Kind], Elapsed]


def against_lance(base: Base, folder: Path, sizes: Sizes) -> Iterator[Measured]:
    """Against a fresh table and ``merge_insert``."""
    pair = Pair.of(base, folder / "pair", 13)
    try:
        pair.runs(sizes.round_rows, sizes.rounds)
        pair.check()
        model = pair.upserts.model
        fresh = folder / "fresh"
        write_fresh(pair.ours.path, fresh)
        with table_scans() as scans:
            others: dict[str, Read] = {
                FRESH: lambda kind: scans.scan(fresh, kind, model),
                MERGE_INSERT: lambda kind: scans.scan(pair.peer.path, kind, model),
            }
            yield from _before_and_after(scans, pair.ours, model, others, sizes)
    finally:
        pair.ours.close()


def against_peer(base: Base, folder: Path, sizes: Sizes, engine: Engine) -> Iterator[Measured]:
    """Against the native reader of a peer."""
    upserts = Upserts(base, 14)
    with RemotePeer(engine, folder / "peer") as peer:
        peer.create(as_parquet(base))
        ours = UpsertedTable(copy_table(base.table, folder / "ours"))
        try:
            _equal_rounds(ours, peer, upserts, folder, sizes)
            with table_scans() as scans:
                others: dict[str, Read] = {
                    peer.name: lambda kind: peer.scan() if kind == "full" else peer.aggregate()[1],
                }
                yield from _before_and_after(scans, ours, upserts.model, others, sizes)
        finally:
            ours.close()


def _equal_rounds(ours: UpsertedTable, peer: RemotePeer, upserts: Upserts, folder: Path, sizes: Sizes) -> None:
    """The same upserts into both."""
    for _ in range(sizes.rounds):
        rows = upserts.batch(sizes.round_rows)
        ours.seal(rows)
        ours.flush()
        ours.merge()
        peer.upsert(write_round(rows, folder))
    peer.check(upserts.model)


def of_snapshot(base: Base, folder: Path, sizes: Sizes, engine: Engine) -> Iterator[Measured]:
    """Row d: a named snapshot of ours read by lance-spark, in turns with its own table after equal rounds of MERGE."""
    upserts = Upserts(base, 15)
    with RemotePeer(engine, folder / "peer") as peer:
        peer.create(as_parquet(base))
        ours = UpsertedTable(copy_table(base.table, folder / "ours"))
        try:
            _equal_rounds(ours, peer, upserts, folder, sizes)
            snapshot = ours.keep("kept")
        finally:
            ours.close()
        check_sums(snapshot, peer.aggregate(snapshot)[0], upserts.model)
        after = f"after {sizes.rounds} rounds of {sizes.round_rows:,} into {sizes.rows:,}"
        acts: Mapping[Kind, tuple[Callable[[], Elapsed], Callable[[], Elapsed]]] = {
            "full": (lambda: peer.scan(snapshot), peer.scan),
            "aggregate": (lambda: peer.aggregate(snapshot)[1], lambda: peer.aggregate()[1]),
        }
        for kind, (mine, theirs) in acts.items():
            pairs = [(mine(), theirs()) for _ in range(RUNS)]
            text = f"{TEXTS[kind]}: a named snapshot by lance-spark, against its own table {after}"
            times = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            yield Measured.of_times("d", text, peer.name, *times, AHEAD)


def _before_and_after(
    scans: TableScans, ours: UpsertedTable, model: Model, others: Mapping[str, Read], sizes: Sizes
) -> Iterator[Measured]:
    after = f"after {sizes.rounds} rounds of {sizes.round_rows:,} into {sizes.rows:,}"
    reads: dict[str, Read] = {
        how: lambda kind, by=by: scans.scan(ours.path, kind, model, by)  # type: ignore[misc] # mypy infers no type for it
        for how, by in OURS.items()
    }
    reads.update(others)
    yield from _lines(reads, after, {"by lancewal": AIM})
    cpu, wall = time.process_time(), ours.compact_all()
    print(f"   compaction: {wall:.1f} s, {time.process_time() - cpu:.1f} s of the CPUs", flush=True)
    yield from _lines(reads, f"{after}, lancewal's table compacted", dict.fromkeys(OURS, COMPACTED_AIM))


def _lines(reads: Mapping[str, Read], name: str, aims: Mapping[str, Aim]) -> Iterator[Measured]:
    """Each of ours against each of the others; ``aims``, by how ours is read, for all columns against a fresh table."""
    for kind, text in TEXTS.items():
        spent: dict[str, list[Elapsed]] = {whose: [] for whose in reads}
        for _ in range(RUNS):
            for whose, read in reads.items():
                spent[whose].append(read(kind))
        for whose in [whose for whose in reads if whose not in OURS]:
            for how in OURS:
                aim = aims.get(how) if (whose, kind) == (FRESH, "full") else None
                yield Measured.of_times("c", f"{text} {how}, {name}", whose, spent[how], spent[whose], aim)
