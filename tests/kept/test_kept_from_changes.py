"""The programs of docs/how-to/keep-a-copy-from-changes.md on real services, while everything dies.

Ingest and flusher processes are killed at points of the protocol.  The two consumers are killed at each point between their
outputs, before and after it.  A dict over the produced records says what the table, every version of the copy, and the sums
must be at their receipts.  The program for Spark runs for minutes in ``tests.soak.changes``.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

import lance
import pytest

from lancewal_demo.stack import KafkaBroker
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.reading.rows import Rows
from lancewal_reader.table import open_table
from tests.kept.keeping import Keeper, program_of
from tests.kept.orders import Orders, Sums, make_orders, reached, sums_of
from tests.public.test_public_names import programs
from tests.support.forks import ROOT
from tests.support.pipeline import SMALL, Key, Pipeline, Row, by_key
from tests.support.whole_path import Life, Slot, until
from tests.whole_path.world import World

PAGE = ROOT / "docs" / "how-to" / "keep-a-copy-from-changes.md"
ADDRESS, COPY, SUMS = "s3://bucket/orders", "s3://bucket/orders-copy", "sums.sqlite"
FUNCTIONS, KEEP_COPY, KEEP_SUMS, KEEP_BY_SPARK = programs(PAGE.read_text(encoding="utf-8"))
COPY_KILLS = (
    "subscription.create:before:1", "subscription.create:after:1", "copy.create:before:1", "copy.create:after:1",
    "subscription.commit:before:1", "copy.write:before:1", "copy.write:after:2", "copy.commit:before:1",
    "copy.commit:after:2", "subscription.commit:before:2", "subscription.commit:after:3", "copy.commit:after:1",
)  # fmt: skip
SUMS_KILLS = (
    "subscription.create:after:1", "sums.commit:before:1", "sums.commit:after:1", "sums.commit:before:1",
    "sums.commit:after:2", "subscription.commit:before:1", "subscription.commit:before:2", "subscription.commit:after:2",
    "sums.commit:before:3", "sums.commit:after:1",
)  # fmt: skip
INGEST = ("wal.put:after:4", "seal.cas:before:2", "flushed.cas:before:2")
FLUSHER = ("fragment.write:after", "commit.send:after", "merged.cas:before")
BATCH = 30
PATIENCE_S = 6.0


@dataclass
class Kept:
    """The table, the outputs of both consumers, and the oracle."""

    world: World
    orders: Orders
    copy: Path
    sums: Path
    checked: int = 0
    """Newest version of the copy that was compared."""

    def copy_receipt(self) -> Receipt | None:
        try:
            return _receipt_of(lance.dataset(str(self.copy)))
        except ValueError:  # it is not there yet
            return None

    def sums_receipt(self) -> Receipt | None:
        found = self._query("SELECT receipt FROM done") if self.sums.exists() else []
        return Receipt.parse(found[0][0]) if found else None

    def check(self) -> None:
        """Each version of the copy, and the sums, are those of the records that their receipts cover."""
        for version in range(self.checked + 1, lance.dataset(str(self.copy)).version + 1):
            copy = lance.dataset(str(self.copy), version=version)
            found = copy.to_table().to_pylist()
            expected = self.orders.fold(_receipt_of(copy))
            assert len(found) == len(expected), f"version {version} of the copy"
            assert {row["id"]: row for row in found} == expected, f"version {version} of the copy"
            self.checked = version
        with sqlite3.connect(self.sums) as one:
            one.execute("BEGIN")
            (receipt,) = one.execute("SELECT receipt FROM done").fetchone()
            rows = one.execute("SELECT status, orders, cents FROM sums").fetchall()
        sums: Sums = {status: (orders, cents) for status, orders, cents in rows}
        of_records = sums_of(self.orders.fold(Receipt.parse(receipt)))
        assert sums == {status or "": of for status, of in of_records.items()}

    def _query(self, query: str) -> list[tuple[str]]:
        with sqlite3.connect(self.sums) as one:
            try:
                return one.execute(query).fetchall()
            except sqlite3.OperationalError:  # the tables are not there yet
                return []


def _receipt_of(copy: lance.LanceDataset) -> Receipt:
    """The receipt in the transaction of this version: each version of the copy has one."""
    transaction = copy.read_transaction(copy.version)
    assert transaction is not None
    return Receipt.parse((transaction.transaction_properties or {})["receipt"])


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_copy_and_sums_are_exact_while_everything_dies(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    world, orders = make_orders(kafka, topic_name, tmp_path, seed)
    kept = Kept(world, orders, tmp_path / "copy", tmp_path / "sums.sqlite")
    texts = {ADDRESS: world.uri, COPY: str(kept.copy)}
    copy_program = program_of(tmp_path, "copy", [FUNCTIONS, KEEP_COPY], texts)
    texts = {ADDRESS: world.uri, SUMS: str(kept.sums)}
    sums_program = program_of(tmp_path, "keep_sums", [FUNCTIONS, KEEP_SUMS], texts)
    slots = [
        Slot(world.lancewal, ("ingest", "run"), [Life(point, certain=True) for point in INGEST], PATIENCE_S),
        Slot(world.lancewal, ("flusher", "run"), [Life(point, certain=True) for point in FLUSHER], PATIENCE_S),
    ]
    keepers = [
        Keeper("copy", copy_program, list(COPY_KILLS)),
        Keeper("sums", sums_program, list(SUMS_KILLS)),
    ]
    receipts = {"copy": kept.copy_receipt, "sums": kept.sums_receipt}

    def died_or_current(keeper: Keeper) -> bool:
        if keeper.tick():
            return True
        receipt = receipts[keeper.name]()
        return receipt is not None and reached(receipt, orders)

    def all_have() -> bool:
        for slot in slots:
            slot.tick()
        for keeper in list(waiting):
            if died_or_current(keeper):
                waiting.remove(keeper)
        return not waiting

    def tails() -> str:
        return "\n".join([*(keeper.tail for keeper in keepers), world.lancewal.tails])

    while not (all(slot.settled for slot in slots) and not any(keeper.kills for keeper in keepers)):
        orders.produce(BATCH)
        waiting = [*keepers]
        until(all_have, tails)
    orders.produce_everywhere()
    waiting = [*keepers]
    until(all_have, tails)
    kept.check()
    for slot in slots:
        assert slot.tick() is None
        slot.service.stop()
    world.merge_all()
    merged, table = lance.dataset(world.uri), open_table(world.uri)

    def have_the_merge() -> bool:
        assert not any(keeper.tick() for keeper in keepers)
        held = {subscription.name: Receipt.parse(subscription.receipt) for subscription in table.subscriptions()}
        stored = {name: receipt() for name, receipt in receipts.items()}
        return held == stored and all(r.version == merged.version for r in held.values())

    until(have_the_merge, tails)
    kept.check()
    for keeper in keepers:
        keeper.end()
    assert [keeper.met for keeper in keepers] == [list(COPY_KILLS), list(SUMS_KILLS)]
    assert {kill.reached for slot in slots for kill in slot.kills} == {
        ":".join(p.split(":")[:2]) for p in (*INGEST, *FLUSHER)
    }
    final = lance.dataset(str(kept.copy)).to_table()
    assert final.sort_by("id").to_pylist() == merged.to_table().select(final.schema.names).sort_by("id").to_pylist()


def test_a_row_that_changes_back_is_missing_in_a_longer_net_feed_and_not_in_all(tmp_path: Path) -> None:
    """So a consumer whose rows and receipt are stored apart follows with ``all``, or goes to the same end again."""
    made = Pipeline(tmp_path, SMALL)
    made.upsert("north", 1, a=1)
    made.ingest()
    table = open_table(made.uri)
    start, cache = table.receipt(), by_key(table.to_arrow())
    made.upsert("north", 1, a=2)
    made.ingest()
    first = table.changes(start)
    changed = {**cache, **_after(first)}  # and its consumer dies here, with the receipt not stored
    made.upsert("north", 1, a=1)
    made.ingest()
    assert made.oracle == cache != changed
    assert {**changed, **_after(table.changes(start))} == changed
    assert {**changed, **_after(table.changes(start, mode="all"))} == made.oracle
    again = {**changed, **_after(table.changes(start, first.receipt))}
    assert {**again, **_after(table.changes(first.receipt))} == made.oracle
    made.close()


def _after(feed: Rows) -> dict[Key, Row]:
    """The rows that a feed puts, by key, in the order of their changes."""
    changes = [row for row in feed.to_arrow().to_pylist() if row["_change_type"] in ("insert", "update_postimage")]
    changes.sort(key=lambda row: row["_sequence"])
    return {(row["region"], row["id"]): {name: row[name] for name in SMALL.names} for row in changes}
