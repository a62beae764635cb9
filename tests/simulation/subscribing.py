"""Consumers of a world that keep subscriptions: created, read, committed and dropped while everything else goes on.

What a subscription names is there, and reads as it did, until its bound: after ``create`` or ``commit`` has returned, only a
user's clean-up, a restore, or a lost segment may end a read at its receipt.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lancewal_core.errors import (
    ContractMismatch,
    InvalidInput,
    LancewalError,
    MergedPositionUnknown,
    ObjectMissing,
    OutsideHistoryWindow,
    SubscriptionMissing,
    TableRestored,
    VersionGone,
)
from lancewal_core.table.subscriptions.needs import Bounds
from lancewal_core.table.watermarks import PROPERTY_WATERMARKS
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.subscriptions import Subscriptions
from tests.simulation import oracle
from tests.simulation.calm import AtOnce
from tests.simulation.checker import require
from tests.simulation.reading import SimTable
from tests.simulation.world import MAX_SKEW_MS, PASSING, Process, World
from tests.twins.sim_clock import EPOCH_MS

BOUNDS = Bounds(margin_ms=2 * MAX_SKEW_MS + 1000, version_window_min_ms=2000)
_LOST = (OutsideHistoryWindow, VersionGone)
_NO_MORE = (*_LOST, MergedPositionUnknown, TableRestored, ObjectMissing)


@dataclass(slots=True)
class Subscribed:
    """A subscription that somebody has begun to create."""

    rows: dict[str, dict[int, oracle.Values]] = field(default_factory=dict)
    """Rows of the receipts that it may be at, by their texts."""
    sure: bool = False
    """Whether the last call that changes it has returned."""
    dropped: bool = False


class Subscribing:
    """What one process does about subscriptions."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self.table = SimTable(world, process)
        self.all = Subscriptions(self.table.reads, process.new_id, BOUNDS)

    def look(self) -> tuple[Receipt, dict[int, oracle.Values]]:
        """A strong read: its receipt and rows."""
        result = self.table.to_batches()
        receipt = receipt_of(result.schema)
        cut = {region: int(position) for region, position in receipt.positions.items()}
        rows = self._world.check_rows(result, cut, receipt.version, f"{self._process.name} version {receipt.version}")
        return receipt, rows

    def create(self, name: str, at: tuple[Receipt, dict[int, oracle.Values]]) -> bool:
        world, (receipt, rows) = self._world, at
        made = world.subscriptions[name] = Subscribed({str(receipt): rows})
        try:
            self.all.create(name, receipt)
        except _NO_MORE as error:
            self._passes(error)
            made.dropped = True
            world.note(f"subscription not created: {type(error).__name__}")
            return False
        made.sure = True
        world.note("subscription created")
        return True

    def commit(self, name: str, at: tuple[Receipt, dict[int, oracle.Values]], *, back: bool = False) -> None:
        world, (receipt, rows) = self._world, at
        known = world.subscriptions[name]
        known.rows[str(receipt)] = rows
        sure, known.sure = known.sure, False
        try:
            self.all.commit(name, receipt, back=back)
        except SubscriptionMissing:
            require(known.dropped or not sure, f"subscription {name} is missing, though nobody dropped it")
            return
        except InvalidInput as error:
            require(not back and "commit it with back=True" in str(error), f"subscription {name}:", error)
            known.sure = sure
            world.note("subscription does not go back")
            return
        except _NO_MORE as error:
            self._passes(error)
            world.note(f"subscription not committed: {type(error).__name__}")
            return
        known.sure = True
        world.note("subscription committed back" if back else "subscription committed")

    def read(self, name: str) -> None:
        """Read at its receipt."""
        world, known = self._world, self._world.subscriptions[name]
        sure = known.sure
        try:
            receipt = Receipt.parse(self.all.get(name).receipt)
        except SubscriptionMissing:
            require(known.dropped or not sure, f"subscription {name} is missing, though nobody dropped it")
            return
        began_ms = _now_ms(world)
        try:
            planned = self.table.scan(at=receipt)
            found, _ = world.by_hand.split(planned.to_reader(), planned.receipt.version)
        except _NO_MORE as error:
            self._passes(error)
            lost = not sure or known.dropped or not known.sure or _over(world, receipt) or _taken(world, receipt)
            passing = not isinstance(error, _LOST)
            require(
                lost or passing,
                f"subscription {name} at",
                receipt,
                "lost what it holds, read from",
                began_ms,
                ":",
                error,
            )
            world.note("subscription is over" if _over(world, receipt) else f"subscription: {type(error).__name__}")
            return
        require(found == known.rows[str(receipt)], f"subscription {name}: rows", found, "at", receipt)
        world.note("subscription read" if _behind_ms(world, receipt) is None else "subscription read, behind")

    def drop(self, name: str) -> None:
        self._world.subscriptions[name].dropped = True
        try:
            self.all.drop(name)
        except SubscriptionMissing:
            return
        self._world.note("subscription dropped")

    def _passes(self, error: LancewalError) -> None:
        world = self._world
        lost = world.losses.named_by(error)
        require(lost or not isinstance(error, ObjectMissing), f"{self._process.name}: nothing is lost, but", error)
        require(world.restored is not None or not isinstance(error, TableRestored), "nobody restored, but", error)


def _now_ms(world: World) -> int:
    return EPOCH_MS + int(world.scheduler.now * 1000)


def _behind_ms(world: World, receipt: Receipt) -> int | None:
    """Time since the first merge after the receipt's version, by the store's clock; None without one."""
    later = [
        landed.number
        for landed in world.dataset.landed
        if landed.number > receipt.version and PROPERTY_WATERMARKS in landed.transaction.properties
    ]
    return _now_ms(world) - world.dataset.stored_ms[min(later)] if later else None


def _over(world: World, receipt: Receipt) -> bool:
    """Whether a subscription may hold nothing more, by some clock."""
    behind_ms = _behind_ms(world, receipt)
    return behind_ms is not None and behind_ms >= world.contract.subscription_hold_s_max * 1000 - 3 * MAX_SKEW_MS


def _taken(world: World, receipt: Receipt) -> bool:
    """Whether a user's clean-up has removed a version that the subscription needs."""
    set_by = [
        landed.number
        for landed in world.dataset.landed
        if landed.number <= receipt.version and PROPERTY_WATERMARKS in landed.transaction.properties
    ]
    lowest = max(set_by, default=1)
    return any(lowest <= version for version in world.taken_by_user)


def subscriber(world: World, process: Process) -> None:
    """Creates subscriptions now and at what others have read; reads, commits and drops them."""
    subscribing, rng = Subscribing(world, process), process.rng
    made = 0
    while True:
        names = sorted(name for name, known in world.subscriptions.items() if not known.dropped)
        past = bool(world.reads) and rng.random() < 0.3
        try:
            if rng.random() < 0.2 or not names:
                made += 1
                at = rng.choice(world.reads) if past else subscribing.look()
                subscribing.create(f"{process.name}-{made}", at)
            elif rng.random() < 0.5:
                subscribing.read(rng.choice(names))
            elif rng.random() < 0.8:
                at = rng.choice(world.reads) if past else subscribing.look()
                subscribing.commit(rng.choice(names), at, back=rng.random() < 0.1)
            else:
                subscribing.drop(rng.choice(names))
        except (*PASSING, *_NO_MORE) as error:
            subscribing._passes(error)
            world.note(f"subscription: {type(error).__name__}")
            world.log(f"{process.name}: {error}")
        except ContractMismatch as error:
            world.note("subscription: ContractMismatch")
            world.check_misfits(error)
        world.scheduler.sleep(rng.choice([0.05, 0.4, 2.0]))


def check_subscribed(world: World) -> None:
    """In the end each of them reads as it was committed, or its bound is over."""
    subscribing = Subscribing(world, replace(world.process("audience"), tasks=AtOnce()))
    for name, known in sorted(world.subscriptions.items()):
        if not known.dropped:
            subscribing.read(name)
