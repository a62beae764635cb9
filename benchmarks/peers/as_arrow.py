"""Row b: upserts given as Arrow tables, snapshot and merge of ours against LakeSoul's native upsert.

Ours is counted from the rows in memory to the end of the flusher's round: snapshot written, merged in one table commit,
the merge finished and marked, the key index kept up; the WAL, which LakeSoul does not have, is not.  Any Lance reader then
sees the rows without merging.  LakeSoul is counted from the rows in memory to its commit: it does not look for old rows,
reads merge them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks.keyed_rows import Base, Upserts, check
from benchmarks.peers.engines import Engine
from benchmarks.peers.measure import Aim, Measured
from benchmarks.peers.remote import RemotePeer
from benchmarks.peers.sizes import WARM_UP_ROWS, WARM_UPS, Sizes, as_parquet, write_round
from benchmarks.spent import Spent
from benchmarks.upserted_table import UpsertedTable, copy_table

AIM, SMALL_AIM = Aim("at most", 1.6), Aim("at most", 2.5)


def measure(base: Base, folder: Path, sizes: Sizes, engine: Engine) -> Iterator[Measured]:
    """Rounds of each size into tables of their own; and small ones into those that have had the large rounds, of which
    every fragment hides rows by then: each merge reads and writes what hides them."""
    small = sizes.small_round_rows
    large = ((sizes.round_rows, AIM, ""), (small, None, f", behind {sizes.rounds} rounds of {sizes.round_rows:,}"))
    for name, rounds in (("large", large), ("small", ((small, SMALL_AIM, ""),))):
        own = folder / name
        own.mkdir()
        yield from _into_new_tables(base, own, sizes, engine, rounds)


def _into_new_tables(
    base: Base, folder: Path, sizes: Sizes, engine: Engine, rounds: Sequence[tuple[int, Aim | None, str]]
) -> Iterator[Measured]:
    upserts = Upserts(base, 11)
    with RemotePeer(engine, folder / "peer") as peer:
        peer.create(as_parquet(base))
        ours = UpsertedTable(copy_table(base.table, folder / "ours"))
        try:
            for count, aim, behind in rounds:
                _in_turns(ours, peer, upserts, WARM_UP_ROWS, WARM_UPS, folder)
                whole, committed, theirs = _in_turns(ours, peer, upserts, count, sizes.rounds, folder)
                name = f"upsert {count:,} Arrow rows into {sizes.rows:,}{behind}"
                yield Measured.of_times("b", f"{name}, key index kept up", peer.name, whole, theirs, aim)
                yield Measured.of_times("b", f"{name}, until our commit", peer.name, committed, theirs)
            check(ours.path, upserts.model)
            peer.check(upserts.model)
        finally:
            ours.close()


def _in_turns(
    ours: UpsertedTable, peer: RemotePeer, upserts: Upserts, count: int, rounds: int, folder: Path
) -> tuple[list[Spent], list[Spent], list[Spent]]:
    """Ours, ours until the commit, theirs; who goes first changes from round to round."""
    both: list[tuple[Spent, Spent]] = []
    theirs: list[Spent] = []
    for n in range(rounds):
        rows = upserts.batch(count)
        file = write_round(rows, folder)
        if n % 2:
            both.append(_our_turn(ours, rows))
            theirs.append(peer.upsert(file))
        else:
            theirs.append(peer.upsert(file))
            both.append(_our_turn(ours, rows))
    return [whole for whole, _ in both], [committed for _, committed in both], theirs


def _our_turn(ours: UpsertedTable, rows: pa.Table) -> tuple[Spent, Spent]:
    """The whole, and until the commit (of which the CPU time is not known apart)."""
    ours.seal(rows)
    start = time.process_time()
    flush = ours.flush()
    times = ours.merge()
    cpu = time.process_time() - start
    return Spent(flush + times.round, cpu), Spent(flush + times.committed, cpu)
