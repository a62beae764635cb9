"""Subscriptions of an open table: ``Table.subscriptions()``.

A subscription begins at a point.  Its consumer reads the changes after its receipt, and commits the receipt up to which
it is done.  Between the two, lancewal's garbage collection keeps what is needed to go on, up to
``table.subscription_hold_s_max`` (``lancewal_core.table.subscriptions``).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from lancewal_core.errors import (
    Corrupt,
    InvalidInput,
    OutsideHistoryWindow,
    VersionGone,
)
from lancewal_core.names.ids import TableVersion
from lancewal_core.table.subscriptions.needs import Bounds, Needs
from lancewal_core.table.subscriptions.stored import check_name
from lancewal_core.table.subscriptions.subscriptions import KeptSubscriptions, Subscription
from lancewal_core.table.watermarks import NOTHING_MERGED, InForce
from lancewal_reader.changes.feed import ChangeRows, Feeds, PlannedFeed
from lancewal_reader.point.at import Point, point_of
from lancewal_reader.point.read_options import read_options
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.reading.reads import Planned, Reads, wanted_of

NOW = "now"
_TRIES = 4
"""Largest number of attempts to create a subscription from now.  Merges may come between the plan and the check that
its data still exist.
"""


class Subscriptions:
    """The subscriptions of a table.  Threads may share it.

    It writes only to the folder ``_lancewal/subscriptions/``.  The credentials need read access to the table, and the
    right to put objects there.
    """

    def __init__(
        self, reads: Reads, new_id: Callable[[], str] = lambda: uuid.uuid4().hex, bounds: Bounds | None = None
    ) -> None:
        self._reads = reads
        self._new_id = new_id
        self._bounds = bounds

    def __iter__(self) -> Iterator[Subscription]:
        """All subscriptions, by name.  Raises the error of one that cannot be read."""
        return iter(self._kept.all())

    def readable(self) -> dict[str, Subscription | Corrupt]:
        """Return all subscriptions by name.  A subscription that cannot be read has its error as the value."""
        return self._kept.readable()

    def check_exists(self, name: str) -> None:
        """Raise ``SubscriptionMissing`` if there is no subscription with this name.  A damaged one counts too."""
        self._kept.id_of(check_name(name))

    def get(self, name: str) -> Subscription:
        """Return the subscription with this name.  Raises ``SubscriptionMissing`` if there is none."""
        return self._kept.get(name)

    def create(self, name: str, start: Point | str | bytes = NOW) -> Subscription:
        """Create a subscription whose first changes come after ``start``, a point or ``now``.

        Raises ``InvalidInput`` if the name is taken or not valid, or if the point has no positions.  Raises
        ``OutsideHistoryWindow`` or ``VersionGone`` if data that the point needs is deleted or about to be; then nothing
        was created.  Raises the errors of a read at the point too.
        """
        check_name(name)
        point = None if start == NOW else point_of(start)
        if isinstance(point, Receipt):
            point.check_table(self._reads.contract.uuid, self._reads.place)
        for left in reversed(range(_TRIES)):
            try:
                return self._kept.create(name, self._needs(point))
            except (OutsideHistoryWindow, VersionGone):
                if point is not None or not left:
                    raise
        raise AssertionError("not reached")

    def commit(self, name: str | Subscription, receipt: Receipt | str | bytes, *, back: bool = False) -> Subscription:
        """Commit a receipt: the consumer has processed all changes up to it.  From now on the subscription keeps only
        what the changes after the receipt need.

        If ``name`` is a ``Subscription``, only that one is meant.  If another one was created under its name since,
        ``SubscriptionMissing`` is raised.

        Raises ``InvalidInput`` for a receipt of another table.  Raises it too if the version or a position is lower
        than in the committed receipt, unless ``back`` is true.  Raises ``SubscriptionMissing`` if the subscription does
        not exist or was dropped.  Raises ``OutsideHistoryWindow`` or ``VersionGone`` if data that the receipt needs is
        deleted or about to be; then the previous receipt stays committed.
        """
        if not isinstance(receipt, Receipt | str | bytes):
            raise InvalidInput(f"commit: expected a receipt, not {type(receipt).__name__}")
        found = receipt if isinstance(receipt, Receipt) else Receipt.parse(receipt)
        found.check_table(self._reads.contract.uuid, self._reads.place)
        name, id = (name.name, name.id) if isinstance(name, Subscription) else (name, None)

        def check(before: Subscription) -> bool:
            behind = _behind(found, Receipt.parse(before.receipt))
            if behind is not None and not back:
                raise InvalidInput(
                    f"subscription {name} is at a newer receipt, with {behind}. To go back to this one, commit it with "
                    "back=True"
                )
            return behind is None

        check(self._kept.get(name, id))
        with losses_named(name):
            return self._kept.commit(name, self._needs(found), check, id)

    def drop(self, name: str) -> None:
        """Drop a subscription, so that it keeps no data.  Raises ``SubscriptionMissing`` if there is none with this
        name.
        """
        self._kept.drop(check_name(name))

    @property
    def _kept(self) -> KeptSubscriptions:
        return KeptSubscriptions(self._reads.context, self._new_id, self._bounds)

    def _needs(self, point: Point | None) -> Needs:
        """Return what a subscription at this point must keep.  ``point``: None for the newest state."""
        planned = self._plan(point)
        if planned.plan.branch is not None:  # a snapshot outlives the changes after it
            point = planned.receipt
            planned = self._plan(point)
        receipt = point if isinstance(point, Receipt) else planned.receipt
        in_force = planned.plan.in_force if receipt.positions else self._nothing_merged(planned.plan.version)
        lowest = min(receipt.version, planned.plan.version, max(in_force.version, 1))
        return Needs(str(receipt), planned.plan.version, TableVersion(lowest), in_force.regions)

    def _nothing_merged(self, version: TableVersion) -> InForce:
        """Return the watermarks of a receipt without positions.  Raises ``InvalidInput`` unless nothing was merged
        then.
        """
        in_force = self._reads.context.watermarks.known_at(version)
        if in_force is None or in_force.regions:
            raise InvalidInput(
                f"the receipt of table version {version} has no positions, since nobody knew what was merged. Begin at a "
                "receipt of a strong read, or at now"
            )
        return NOTHING_MERGED

    def _plan(self, point: Point | None) -> Planned:
        key = self._reads.contract.primary_key[0]
        return self._reads.plan(wanted_of([key], None, read_options(at=point)))


class FollowedFeeds(Iterator[ChangeRows]):
    """Feeds of changes, one after the other (``Table.follow``).

    The iteration ends after an error.  Call ``follow`` again to continue from the last receipt, or from the
    subscription.  If a subscription has lost data, the error names it, also while rows of a feed are read.
    """

    def __init__(self, feeds: Feeds, planned: Iterator[PlannedFeed], followed: Subscription | None) -> None:
        """``followed``: the subscription whose receipt is the start of the feeds."""
        self._feeds = feeds if followed is None else _SubscribedFeeds(feeds, followed.name)
        self._planned = planned
        self._subscriptions = Subscriptions(feeds.reads)
        self._followed = followed
        self._last: Receipt | None = None

    def __next__(self) -> ChangeRows:
        with losses_named(None if self._followed is None else self._followed.name):
            planned = next(self._planned)
        self._last = planned.receipt
        return ChangeRows(self._feeds, planned)

    def commit(self, receipt: Receipt | str | bytes | None = None) -> None:
        """Commit a receipt to the subscription, by default that of the last feed.  Call this after the feed's rows are
        processed.

        Raises ``InvalidInput`` without a subscription, or before the first feed.  Raises ``SubscriptionMissing`` if the
        subscription was dropped, even if another one has its name now.  Raises the errors of ``Subscriptions.commit``
        too.
        """
        if self._followed is None:
            raise InvalidInput("commit: no subscription is followed. Keep the receipt, and give it as start")
        done = self._last if receipt is None else receipt
        if done is None:
            raise InvalidInput("commit: there was no feed yet, so there is nothing to commit")
        self._subscriptions.commit(self._followed, done)


class _SubscribedFeeds:
    """Feeds whose rows are read for a subscription."""

    def __init__(self, feeds: Feeds, name: str) -> None:
        self._feeds = feeds
        self._name = name

    def again(self, planned: PlannedFeed) -> tuple[PlannedFeed, Iterator[pa.RecordBatch]]:
        """Return what ``Feeds.again`` returns; errors name the subscription."""
        with losses_named(self._name):
            planned, batches = self._feeds.again(planned)
        return planned, self._named(batches)

    def _named(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with losses_named(self._name):
            yield from batches


def _behind(receipt: Receipt, before: Receipt) -> str | None:
    """Return the first version or position of ``before`` that ``receipt`` does not reach, as text for a message.
    Return None if it reaches all.
    """
    if receipt.version < before.version:
        return f"table version {before.version}"
    for region, position in sorted(before.positions.items()):
        if receipt.positions.get(region, 0) < position:
            return f"position {position} of partition {region.name}"
    return None


@contextmanager
def losses_named(name: str | None) -> Iterator[None]:
    """Extend errors about deleted data.  They say which subscription lost the data, and how to start again without a
    gap.

    ``name``: None if there is no subscription.
    """
    try:
        yield
    except (OutsideHistoryWindow, VersionGone) as error:
        if name is None or "subscription" in error.where:
            raise
        raise type(error)(
            f"the changes after the receipt of subscription {name} cannot all be given any more: {error}. To begin again "
            "without a gap, drop it and create it again from now. Then read the whole state at its new receipt, and the "
            "changes after that. The table's subscription_hold_s_max says how long a subscription keeps what it needs",
            **{**error.where, "subscription": name},
        ) from error
