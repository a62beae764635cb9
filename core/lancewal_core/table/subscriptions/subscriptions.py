"""Subscriptions: named receipts from which consumers of changes continue.

A subscription *holds* what a read at its receipt, and a feed of changes from there, *need*: it keeps these objects from
garbage collection.  The objects are the log and history from the receipt's positions on, and table versions from its
version on.  The *bound* of a subscription is ``table.subscription_hold_s_max`` after the time when its state was the
newest.  Until then the objects are held.  A subscription cannot stop a user's clean-up of versions.

Guarantees
 1. Once ``create`` or ``commit`` has returned, all needed objects exist, and garbage collection keeps them until the
    bound.
 2. A commit goes back to an older receipt only if the caller asks for it.  Then it succeeds only if the needed objects
    still exist.
 3. After ``drop``, and in a table that was made again, nothing is held, and no commit brings a subscription back.
 4. While a subscription cannot be read, garbage collection keeps everything that it could hold, up to the bound.

Only the folder of subscriptions is written.  A list has the names of all subscriptions, and the id of each.  The list
is found without a listing of the store, and none of its versions is deleted while the table exists.  A subscription
is stored as versions whose keys have its id.  Each ``create`` makes a new id.  So if a subscription is dropped, or
made again under its name, a late commit to the old id has no effect.  A consumer that runs for long gives the id from
which it began.  Its commit is refused if the name has another id.

A version of a subscription is *sure* if all needed objects were held when it was put, or were found to exist
afterwards.  Objects are *young* if no round of garbage collection can have decided to delete them before the
subscription was stored (``needs``).

Steps of ``create``
 1. Put version 1 of the subscription, under a new id.
 2. Swap the list, so that the name has this id.  From now on the subscription holds its needs.
 3. Check that all needed objects exist and are young.  If so, put a version that is sure.  Otherwise remove the name
    from the list, and raise the error.

Steps of ``commit``
 1. Read the list.  If the caller gives an id, the name must have it.  Then swap the subscription: the next version
    has the new receipt.  It is sure if the previous version was sure and the receipt goes forward, since the previous
    version needs more.  Before the swap, check whether the previous version still holds its needs.  If the receipt
    goes back, check before the swap that all needed objects exist and are young.  A version that holds nothing must
    not replace one that does.
 2. Check that all needed objects exist.  If the new version is sure, the previous one must have held them right
    before the swap, or they must be young.  If it is not sure, they must be young; then put a version that is sure.
    If a check fails, swap in the receipt of the previous version again, and raise the error.
 3. Read the list again: the name must still have this id.

If a process dies between the steps, the version that it has put counts, and holds the needed objects that still exist.

Garbage collection deletes old versions of a subscription long after newer ones were put, and objects of ids that the
list does not have.
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
    """Text of the receipt from which the consumer continues."""
    version: int
    """Table version that a read at the receipt pins: the receipt's own, or another one with the same rows."""
    created_ms: int
    committed_ms: int
    id: str
    """Random id, which differs from those of earlier subscriptions of the same name."""


def subscription_of(stored: StoredSubscription, id: str) -> Subscription:
    return Subscription(stored.name, stored.receipt, stored.version, stored.created_at_ms, stored.committed_at_ms, id)


def about(subscription: Subscription) -> Mapping[str, object]:
    """Return the members of a subscription in reports, such as ``--json`` output."""
    return {
        "name": subscription.name,
        "version": subscription.version,
        "receipt": subscription.receipt,
        "created_at": utc_text(subscription.created_ms),
        "committed_at": utc_text(subscription.committed_ms),
    }


def read_names(store: ObjectStore, making: Making | None, tasks: Tasks | None = None) -> SubscriptionNames:
    """Return the newest list of subscriptions.  In a table that never had one this costs one request."""
    family = names_family(making)
    if store.get(family.key(FIRST_VERSION)) is None:
        return NO_NAMES
    return decoded_names(newest_version(store, family, tasks=tasks), making)


def decoded_names(found: Version | None, making: Making | None) -> SubscriptionNames:
    return NO_NAMES if found is None else SubscriptionNames.decode(found.data, names_family(making).key(found.version))


def decoded_subscription(found: Version | None, name: str, id: str, making: Making | None) -> StoredSubscription:
    """Decode ``found``, the newest version of the subscription with this id.  Raise ``ObjectMissing`` if it is None."""
    family = subscription_family(id, making)
    if found is None:
        raise ObjectMissing(
            f"subscription {name!r} is in the list, but its objects under {family.prefix} are missing. Restore them, or "
            f"remove the name from the list: `lancewal subscription drop {name}`",
            object=family.key(FIRST_VERSION),
        )
    return StoredSubscription.decode(found.data, family.key(found.version))


def read_stored(opened: OpenedTable) -> dict[str, StoredSubscription | Corrupt]:
    """Return all subscriptions by name.  A subscription that cannot be read has its error as the value.  In a table
    that never had a subscription this costs one request.
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
        """Return all subscriptions, sorted by name.  Raise the error of the first that cannot be read."""
        return [or_raised(found) for found in self.readable().values()]

    def readable(self) -> dict[str, Subscription | Corrupt]:
        """Return all subscriptions by name.  A subscription that cannot be read has its error as the value."""
        ids = read_names(self._opened.store, self._making, self._opened.tasks).ids
        return {
            name: subscription_of(found, ids[name]) if isinstance(found, StoredSubscription) else found
            for name, found in _read_all(self._opened, ids).items()
        }

    def get(self, name: str, id: str | None = None) -> Subscription:
        """Return a subscription by its name.  Raise ``SubscriptionMissing`` if there is none, or if ``id`` is given
        and the name has another id.
        """
        id = self.id_of(name, id)
        return subscription_of(_read(self._opened, name, id), id)

    def create(self, name: str, needs: Needs) -> Subscription:
        """Create a subscription whose receipt has these needs.

        Raise ``InvalidInput`` if the name is taken or not valid, or if the table has the most subscriptions already.
        Raise ``OutsideHistoryWindow`` or ``VersionGone`` if needed objects are gone, or if garbage collection may be
        deleting them.
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
                    f"the table has {len(names.ids)} subscriptions, and {SUBSCRIPTIONS_MAX} is the most. Drop some that "
                    "nobody uses (`lancewal subscription list`, `lancewal subscription drop NAME`)"
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
        """Commit the receipt with these needs to a subscription.

        ``check`` gets the subscription as it is stored, and returns whether the receipt goes forward from there, or
        raises an error.  ``id``: the id that the name must have; None: any.  Raise ``SubscriptionMissing`` if there
        is no such subscription, or if it is dropped during the call.  Raise ``OutsideHistoryWindow`` or
        ``VersionGone`` if needed objects are gone, or if garbage collection may be deleting them.
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
        """Drop a subscription, also one that cannot be read.  Raise ``SubscriptionMissing`` if there is none of this
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
        """Raise ``OutsideHistoryWindow`` or ``VersionGone`` unless all needed objects exist, and are young or held.

        ``held_until_ms``: time until which a sure version holds them; 0: none does."""
        opened = self._opened
        age, now_ms = look(opened, needs), opened.clock.now_ms()
        if now_ms >= held_until_ms and not age.within(opened.contract, now_ms, self._bounds):
            raise too_old(needs, opened.contract)

    def _held_until_ms(self, stored: StoredSubscription) -> int:
        """Return the time until which the sure version ``stored`` certainly holds its needs, in milliseconds since
        1970.  Return 0 if it may hold nothing any more."""
        opened = self._opened
        try:
            age, now_ms = look(opened, Needs.of(stored)), opened.clock.now_ms()
        except (OutsideHistoryWindow, VersionGone):
            return 0
        return now_ms + self._bounds.margin_ms if age.held(opened.contract, now_ms, self._bounds) else 0

    def _replace(self, name: str, id: str, ours: StoredSubscription, new: StoredSubscription) -> StoredSubscription:
        """Write ``new`` as the next version if ``ours`` is still the newest one.  Return ``new`` in either case."""

        def decide(found: Version | None) -> StoredSubscription | None:
            newest = decoded_subscription(found, name, id, self._making)
            return new.model_copy(update={"write_id": self._new_id()}) if newest == ours else None

        family = subscription_family(id, self._making)
        swap(self._opened.store, family, self._opened.clock, decide, StoredSubscription.encode)
        return new

    def id_of(self, name: str, wanted: str | None = None) -> str:
        """Return the id of a subscription.  Raise ``SubscriptionMissing`` if there is none of this name, or if
        ``wanted`` is given and the name has another id.
        """
        found = read_names(self._opened.store, self._making, self._opened.tasks).ids.get(check_name(name))
        if found is None:
            raise self._missing(name)
        if wanted not in (None, found):
            raise SubscriptionMissing(
                f"subscription {name!r} was dropped, and another one has its name since. To continue with the new one, begin "
                "at its receipt, which `lancewal subscription list` shows",
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
        """Write the next version of the list, with the ids that ``change`` returns for the newest.  Write nothing if
        they are equal."""

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
    """Return the list's ids without ``name``.  If ``id`` is given and the name has another id, the name stays."""
    return {known: of for known, of in names.ids.items() if known != name or (id is not None and of != id)}
