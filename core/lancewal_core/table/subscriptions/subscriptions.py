"""Subscriptions: named receipts from which consumers of changes go on.

A subscription keeps the needs of a read at its receipt, and of a feed of changes from there, from garbage collection.
These are the log and history from the receipt's positions on, and table versions from its version on.  It keeps them until
``table.subscription_hold_s_max`` after its state was the newest.  It cannot stop a user's clean-up of versions.

Guarantees
 1. Once ``create`` or ``commit`` has returned, everything that is needed is there, and garbage collection leaves it until
    the bound.
 2. A commit never goes back, unless it is asked to.  It then keeps what it names only if that is still there.
 3. After ``drop``, and in a table that was made again, nothing is held, and no commit brings a subscription back.
 4. A subscription that cannot be read holds all that it could hold, up to the bound.

Nothing but the folder of subscriptions is written.  A list has the names of all subscriptions, and the id of each.  It is
found without a listing of the store, and no version of it is deleted while its table exists.  A subscription is a family
of versions, whose keys have its id.  An id is new for each ``create``.  So a commit to a subscription that was dropped
meanwhile, or made again under its name, goes where nobody reads.  A consumer that goes on for long names the id from which
it began: then its commit is refused if the name has another one.

A version is *sure* if it held everything needed when it was put, or its writer has found so afterwards.

Steps of ``create``
 1. Put version 1 of the subscription, under a new id.
 2. Swap the list: the name has that id.  From here on the subscription counts.
 3. Look whether everything needed is there, and so young that no round of garbage collection can have decided to take
    it before step 2 (``needs``).  Then put a version that is sure.  Otherwise take the name off the list again, and raise
    the error.

Steps of ``commit``
 1. Read the list: the name must have the id that is asked for, if one is.  Then swap the subscription: the next version has
    the new receipt.  It is sure if the version before was, and the receipt goes forward, since the version before needs
    more.  Look first whether the version before holds yet.  If the receipt goes back, look first whether everything that it
    needs is there and as young as in step 3 of ``create``.  A version that holds nothing must not take the place of one
    that does.
 2. Look whether everything needed is there.  If the version is sure, the one before must have held just before the swap,
    or all must be as young.  If it is not sure, all must be as young, and a version that is sure is put.  Otherwise the
    receipt of the version before is swapped in again, and the error raised.
 3. Read the list again: the name must still have that id.

If a process dies between the steps, the version counts, and holds what is still there.

Garbage collection deletes versions long after newer ones, and what belongs to no name of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from lancewal_core.errors import (
    Corrupt,
    InvalidInput,
    LancewalError,
    ObjectMissing,
    OutsideHistoryWindow,
    SubscriptionMissing,
    VersionGone,
    or_corrupt,
    or_raised,
    some_of,
)
from lancewal_core.names.ids import Making
from lancewal_core.process.clock import utc_text
from lancewal_core.process.tasks import Tasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.store.object_store import ObjectStore, put_own
from lancewal_core.store.versioned import FIRST_VERSION, Declined, Version, newest_version, swap
from lancewal_core.table.subscriptions.needs import Bounds, Needs, look, too_old
from lancewal_core.table.subscriptions.stored import (
    NO_NAMES,
    SUBSCRIPTIONS_MAX,
    MergedMark,
    StoredSubscription,
    SubscriptionNames,
    check_name,
    names_family,
    subscription_family,
)

_NAMED_MAX = 20
E = TypeVar("E", bound=LancewalError)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription as it was read.  Times are in milliseconds since 1970, by the clock of the writer."""

    name: str
    receipt: str
    """Text of the receipt from which its consumer goes on."""
    version: int
    """Table version of that receipt, or the one that stood in for it."""
    created_ms: int
    committed_ms: int
    id: str
    """Tells it from others that have had its name."""


def subscription_of(stored: StoredSubscription, id: str) -> Subscription:
    return Subscription(stored.name, stored.receipt, stored.version, stored.created_at_ms, stored.committed_at_ms, id)


def about(subscription: Subscription) -> Mapping[str, object]:
    """Return a subscription as a report shows it."""
    return {
        "name": subscription.name,
        "version": subscription.version,
        "receipt": subscription.receipt,
        "created_at": utc_text(subscription.created_ms),
        "committed_at": utc_text(subscription.committed_ms),
    }


def read_names(store: ObjectStore, making: Making | None, tasks: Tasks | None = None) -> SubscriptionNames:
    """Return the newest list of subscriptions.  A table without any costs one request."""
    family = names_family(making)
    if store.get(family.key(FIRST_VERSION)) is None:
        return NO_NAMES
    return decoded_names(newest_version(store, family, tasks=tasks), making)


def decoded_names(found: Version | None, making: Making | None) -> SubscriptionNames:
    return NO_NAMES if found is None else SubscriptionNames.decode(found.data, names_family(making).key(found.version))


def decoded_subscription(found: Version | None, name: str, id: str, making: Making | None) -> StoredSubscription:
    """Decode the newest version of the subscription with this id.  Raises ``ObjectMissing`` if there is no version."""
    family = subscription_family(id, making)
    if found is None:
        raise ObjectMissing(
            f"subscription {name}: {family.prefix} is empty. `lancewal subscription drop {name}` takes the name off the "
            "list",
            object=family.key(FIRST_VERSION),
        )
    return StoredSubscription.decode(found.data, family.key(found.version))


def read_stored(opened: OpenedTable) -> dict[str, StoredSubscription | Corrupt]:
    """Return all subscriptions by name.  A subscription that cannot be read has its error as the value.  A table
    without subscriptions costs one request.
    """
    return _read_all(opened, read_names(opened.store, opened.contract.making, opened.tasks).ids)


def _read_all(opened: OpenedTable, ids: Mapping[str, str]) -> dict[str, StoredSubscription | Corrupt]:
    names = sorted(ids)
    found = opened.tasks.map(lambda name: or_corrupt(lambda: _read(opened, name, ids[name])), names) if names else ()
    return dict(zip(names, found, strict=True))


def _read(opened: OpenedTable, name: str, id: str) -> StoredSubscription:
    making = opened.contract.making
    found = newest_version(opened.store, subscription_family(id, making), tasks=opened.tasks)
    return decoded_subscription(found, name, id, making)


class KeptSubscriptions:
    """Reader and writer of an open table's subscriptions."""

    def __init__(self, opened: OpenedTable, new_id: Callable[[], str], bounds: Bounds | None = None) -> None:
        self._opened = opened
        self._new_id = new_id
        self._bounds = bounds or Bounds()

    @property
    def _making(self) -> Making | None:
        return self._opened.contract.making

    def all(self) -> list[Subscription]:
        """Return all subscriptions, by name.  Raise the error of one that cannot be read."""
        return [or_raised(found) for found in self.readable().values()]

    def readable(self) -> dict[str, Subscription | Corrupt]:
        """Return all subscriptions by name.  A subscription that cannot be read has its error as the value."""
        ids = read_names(self._opened.store, self._making, self._opened.tasks).ids
        return {
            name: subscription_of(found, ids[name]) if isinstance(found, StoredSubscription) else found
            for name, found in _read_all(self._opened, ids).items()
        }

    def get(self, name: str, id: str | None = None) -> Subscription:
        """Return a subscription.  With ``id``, only the subscription with this id is meant.  Raises the errors of
        ``id_of``.
        """
        id = self.id_of(name, id)
        return subscription_of(_read(self._opened, name, id), id)

    def create(self, name: str, needs: Needs) -> Subscription:
        """Create a subscription.

        Raises ``InvalidInput`` if the name is taken or not valid.  Raises ``OutsideHistoryWindow``, ``VersionGone`` if
        what the receipt needs is gone, or may be going.
        """
        check_name(name)
        opened, id = self._opened, self._new_id()
        # Step 1
        first = self._stored(name, needs, opened.clock.now_ms())
        put_own(opened.store, subscription_family(id, self._making).key(FIRST_VERSION), first.encode())

        # Step 2
        def added(names: SubscriptionNames) -> Mapping[str, str]:
            known = names.ids.get(name)
            if known not in (None, id):
                raise InvalidInput(
                    f"there is a subscription {name!r} already. Commit to it, or drop it first: `lancewal subscription drop "
                    f"{name}`"
                )
            if len(names.ids) >= SUBSCRIPTIONS_MAX and known is None:
                raise InvalidInput(
                    f"the table has {len(names.ids)} subscriptions, and {SUBSCRIPTIONS_MAX} is the most. Drop those that "
                    "nobody uses: `lancewal subscription list`"
                )
            return {**names.ids, name: id}

        self._swap_names(added)
        # Step 3
        try:
            self._check(needs)
        except (OutsideHistoryWindow, VersionGone):
            self._swap_names(partial(_without, name, id))
            raise
        return subscription_of(self._replace(name, id, first, first.model_copy(update={"sure": True})), id)

    def commit(
        self, name: str, needs: Needs, check: Callable[[Subscription], bool], id: str | None = None
    ) -> Subscription:
        """Commit a receipt to a subscription; ``id``: to the one with this id alone.

        ``check`` returns whether the receipt goes forward from the subscription found, or refuses it by an error.
        Raises ``SubscriptionMissing`` if there is none, or it was dropped meanwhile.  Raises ``OutsideHistoryWindow``,
        ``VersionGone`` if what the receipt needs is gone, or may be going.
        """
        opened, id = self._opened, self.id_of(name, id)
        before: list[StoredSubscription] = []
        held_until_ms = 0

        # Step 1
        def decide(found: Version | None) -> StoredSubscription | None:
            nonlocal held_until_ms
            newest = decoded_subscription(found, name, id, self._making)
            forward = check(subscription_of(newest, id))
            before.append(newest)
            if newest.receipt == needs.receipt:
                return None
            if not forward:
                self._check(needs)
            elif newest.sure:
                held_until_ms = self._held_until_ms(newest)
            stored = self._stored(name, needs, newest.created_at_ms)
            return stored.model_copy(update={"sure": newest.sure and forward})

        outcome = swap(
            opened.store, subscription_family(id, self._making), opened.clock, decide, StoredSubscription.encode
        )
        ours = before[-1] if isinstance(outcome, Declined) else outcome.value
        # Step 2
        try:
            self._check(needs, held_until_ms if ours.sure else 0)
        except (OutsideHistoryWindow, VersionGone):
            if ours is not before[-1]:
                self._replace(name, id, ours, before[-1])
            raise
        if not ours.sure:
            ours = self._replace(name, id, ours, ours.model_copy(update={"sure": True}))
        # Step 3
        if read_names(opened.store, self._making, opened.tasks).ids.get(name) != id:
            raise self._missing(name)
        return subscription_of(ours, id)

    def drop(self, name: str) -> None:
        """Drop a subscription, whether or not it can be read.  Raises ``SubscriptionMissing`` if there is none of this
        name.
        """
        found: list[bool] = []

        def dropped(names: SubscriptionNames) -> Mapping[str, str]:
            found.append(name in names.ids)
            return _without(name, None, names)

        self._swap_names(dropped)
        if not any(found):
            raise self._missing(name)

    def _check(self, needs: Needs, held_until_ms: int = 0) -> None:
        """Look whether everything needed is there and stays.  ``held_until_ms``: until then a sure version holds it."""
        opened = self._opened
        age, now_ms = look(opened, needs), opened.clock.now_ms()
        if now_ms >= held_until_ms and not age.within(opened.contract, now_ms, self._bounds):
            raise too_old(needs, opened.contract)

    def _held_until_ms(self, stored: StoredSubscription) -> int:
        """Return until when a sure version surely holds what it needs; 0: it may hold it no more."""
        opened = self._opened
        try:
            age, now_ms = look(opened, Needs.of(stored)), opened.clock.now_ms()
        except (OutsideHistoryWindow, VersionGone):
            return 0
        return now_ms + self._bounds.margin_ms if age.held(opened.contract, now_ms, self._bounds) else 0

    def _replace(self, name: str, id: str, ours: StoredSubscription, new: StoredSubscription) -> StoredSubscription:
        """Swap in ``new`` if ``ours`` is still the newest version, and return it."""

        def decide(found: Version | None) -> StoredSubscription | None:
            newest = decoded_subscription(found, name, id, self._making)
            return new.model_copy(update={"write_id": self._new_id()}) if newest == ours else None

        family = subscription_family(id, self._making)
        swap(self._opened.store, family, self._opened.clock, decide, StoredSubscription.encode)
        return new

    def id_of(self, name: str, wanted: str | None = None) -> str:
        """Return the id of a subscription.  Raises ``SubscriptionMissing`` if there is none of this name, or it has
        another id than the wanted one.
        """
        found = read_names(self._opened.store, self._making, self._opened.tasks).ids.get(check_name(name))
        if found is None:
            raise self._missing(name)
        if wanted not in (None, found):
            raise SubscriptionMissing(
                f"subscription {name!r} was dropped, and another one has its name since. To go on with that one, begin at "
                "its receipt, which `lancewal subscription list` shows",
                subscription=name,
            )
        return found

    def _missing(self, name: str) -> SubscriptionMissing:
        names = sorted(read_names(self._opened.store, self._making, self._opened.tasks).ids)
        there = f"there are {some_of(names, _NAMED_MAX)}" if names else "there are none"
        return SubscriptionMissing(
            f"there is no subscription {name!r}: {there}. `lancewal subscription create` makes one", subscription=name
        )

    def _swap_names(self, change: Callable[[SubscriptionNames], Mapping[str, str]]) -> None:
        """Swap the list, unless the change changes nothing."""

        def decide(found: Version | None) -> SubscriptionNames | None:
            names = decoded_names(found, self._making)
            after = dict(change(names))
            return None if after == names.ids else SubscriptionNames(ids=after, write_id=self._new_id())

        swap(self._opened.store, names_family(self._making), self._opened.clock, decide, SubscriptionNames.encode)

    def _stored(self, name: str, needs: Needs, created_ms: int) -> StoredSubscription:
        return StoredSubscription(
            name=name,
            receipt=needs.receipt,
            version=needs.version,
            versions_from=needs.versions_from,
            merged={
                region.name: MergedMark(generation=mark.generation, next=mark.next)
                for region, mark in sorted(needs.merged.items())
            },
            created_at_ms=created_ms,
            sure=False,
            committed_at_ms=self._opened.clock.now_ms(),
            write_id=self._new_id(),
        )


def _without(name: str, id: str | None, names: SubscriptionNames) -> Mapping[str, str]:
    """Return the list without this name, if it has this id; None: whatever id it has."""
    return {known: of for known, of in names.ids.items() if known != name or (id is not None and of != id)}
