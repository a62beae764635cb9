"""Row b: upserts given as Arrow tables.  lancewal's flush and merge against LakeSoul's native upsert.

lancewal is timed from the rows in memory to the end of the flusher's round: the flush is written, merged in one table
commit, finished and marked, and the key index is updated.  The WAL, which LakeSoul does not have, is not timed.  Then
any Lance reader sees the rows without merging.  LakeSoul is timed from the rows in memory to its commit: it does not
look for old rows, and its reads merge them.  A second time of LakeSoul includes reading the Parquet file from which it
gets the rows.  The floor (``lance_alone``) is the time in which pylance writes the rows and deletion files of such a
merge.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from benchmarks.elapsed import Elapsed
from benchmarks.keyed_rows import Base, Upserts, check
from benchmarks.peers.engines import Engine
from benchmarks.peers.lance_alone import LanceAlone
from benchmarks.peers.measure import Aim, Measured
from benchmarks.peers.remote import RemotePeer
from benchmarks.peers.sizes import WARM_UP_ROWS, WARM_UPS, Sizes, as_parquet, write_round
from benchmarks.upserted_table import UpsertedTable, copy_table

FLOOR = "pylance, rows known"
AIM, SMALL_AIM = Aim("at most", 1.6), Aim("at most", 2.5)


def measure(base: Base, folder: Path, sizes: Sizes, engine: Engine) -> Iterator[Measured]:
    """Rounds of each size into tables of their own; and small ones into those that have had the large rounds, of which
    every fragment hides rows by then: each merge reads and writes what hides them."""
    small = sizes.small_round_rows
    large = ((sizes.round_rows, AIM, ""), (small, None, f", after {sizes.rounds} rounds of {sizes.round_rows:,}"))
    for name, rounds in (("large", large), ("small", ((small, SMALL_AIM, ""),))):
        own = folder / name
        own.mkdir()
        yield from _into_new_tables(base, own, sizes, engine, rounds)


def _into_new_tables(
    base: Base, folder: Path, sizes: Sizes, engine: Engine, rounds: Sequence[tuple[int, Aim | None, str]]
) -> Iterator[Measured]:
    upserts = Upserts(base, 11)
    with ExitStack() as stack:
        peer = stack.enter_context(RemotePeer(engine, folder / "peer"))
        peer.create(as_parquet(base))
        ours = stack.enter_context(closing(UpsertedTable(copy_table(base.table, folder / "ours"))))
        alone = stack.enter_context(closing(LanceAlone(copy_table(base.table, folder / "alone"))))
        for count, aim, after in rounds:
            _in_turns(ours, alone, peer, upserts, WARM_UP_ROWS, WARM_UPS, folder)
            spent = _in_turns(ours, alone, peer, upserts, count, sizes.rounds, folder)
            name = f"upsert {count:,} Arrow rows into {sizes.rows:,}{after}"
            whole = f"{name}, key index kept up"
            yield Measured.of_times("b", whole, peer.name, spent.whole, spent.peer, aim)
            reading = f"{name}, the peer's time with reading its file"
            yield Measured.of_times("b", reading, peer.name, spent.whole, spent.peer_read)
            yield Measured.of_times("b", f"{name}, until lancewal's commit", peer.name, spent.committed, spent.peer)
            yield Measured.of_times("b", whole, FLOOR, spent.whole, spent.alone)
            yield Measured.of_times(
                "b", f"{name}, Lance's own calls instead of lancewal", peer.name, spent.alone, spent.peer
            )
        for path in (ours.path, alone.path):
            check(path, upserts.model)
        peer.check(upserts.model)


@dataclass(slots=True)
class _Turns:
    """What each round took: ours as a whole and until its commit, the floor, the peer without and with reading."""

    whole: list[Elapsed] = field(default_factory=list)
    committed: list[Elapsed] = field(default_factory=list)
    alone: list[Elapsed] = field(default_factory=list)
    peer: list[Elapsed] = field(default_factory=list)
    peer_read: list[Elapsed] = field(default_factory=list)


def _in_turns(
    ours: UpsertedTable,
    alone: LanceAlone,
    peer: RemotePeer,
    upserts: Upserts,
    count: int,
    rounds: int,
    folder: Path,
) -> _Turns:
    """Who goes first changes from round to round."""
    spent = _Turns()

    def our_turn(rows: pa.Table, _file: Path) -> None:
        whole, committed = _our_turn(ours, rows)
        spent.whole.append(whole)
        spent.committed.append(committed)

    def peers_turn(_rows: pa.Table, file: Path) -> None:
        read, upserted = peer.read_and_upsert(file)
        spent.peer.append(upserted)
        spent.peer_read.append(read + upserted)

    turns: list[Callable[[pa.Table, Path], None]] = [
        our_turn,
        lambda rows, _: spent.alone.append(alone.upsert(rows)),
        peers_turn,
    ]
    for _ in range(rounds):
        rows = upserts.batch(count)
        file = write_round(rows, folder)
        for turn in turns:
            turn(rows, file)
        turns.append(turns.pop(0))
    return spent


def _our_turn(ours: UpsertedTable, rows: pa.Table) -> tuple[Elapsed, Elapsed]:
    """The whole, and until the commit (of which the CPU time is not known apart)."""
    ours.seal(rows)
    start = time.process_time()
    flush = ours.flush()
    times = ours.merge()
    cpu = time.process_time() - start
    return Elapsed(flush + times.round, cpu), Elapsed(flush + times.committed, cpu)
