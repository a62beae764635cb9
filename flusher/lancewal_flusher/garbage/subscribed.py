"""Read what subscriptions keep from garbage collection, for steps 3 and 7 of ``collect``.  A round reads this after
it has decided which windows are over.

Guarantees
 1. Every subscription that was in the list of names when a call began is read.  The newest version of the list is
    found without a listing of the store.
 2. The version of a subscription that counts is the newest, or was the newest at some time since the list was read.
 3. A subscription that cannot be read is treated as if it needed everything (``Holding.faults``).  A store that does
    not answer ends the round.

Old objects are deleted once an hour.  A version of a subscription is old if the newest version was stored an hour
after it.  Version 1 and the newest hundred versions are never old.  Objects of a subscription that is not in the list
are old after a day.  Objects of another making of the table are old at once.  All objects are listed before the list
of names is read, and before version 1 of the contract is read again.  So a process of a former table deletes nothing
of the table that was made after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lancewal_core.errors import Corrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, LogId, Region, Sequence
from lancewal_core.region.history import History, read_sound_histories
from lancewal_core.region.state import GenerationRecord
from lancewal_core.store.object_store import ObjectInfo
from lancewal_core.store.versioned import FIRST_VERSION, Version, newest_behind, newest_version
from lancewal_core.table.contract import Contract
from lancewal_core.table.presence import check_present
from lancewal_core.table.subscriptions.holding import HOLDS_NOTHING, Holding, former_regions, holding_of
from lancewal_core.table.subscriptions.stored import (
    StoredSubscription,
    SubscriptionNames,
    names_family,
    subscription_family,
)
from lancewal_core.table.subscriptions.subscriptions import decoded_names, decoded_subscription
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.garbage.find import VERSIONS_KEPT, old_versions

VERSIONS_KEPT_MS = 3600 * 1000
NAMELESS_KEPT_MS = 24 * 3600 * 1000
"""Milliseconds for which a subscription that is not in the list of names is kept.  A process writes a subscription
before it adds its name to the list, and takes far less time for both."""
_KNOWN_S = 600.0
"""Seconds for which the search for a subscription's newest version begins at the version read before.  After that it
begins with a listing.  This is far less than ``VERSIONS_KEPT_MS``."""


@dataclass(slots=True)
class _Read:
    """The newest version of a subscription when it was last read.  ``at``: that time, in monotonic seconds."""

    at: float
    found: Version | None
    stored: StoredSubscription | Corrupt


@dataclass(frozen=True, slots=True)
class KeptBySubscription:
    """Lag of one subscription, and what it keeps."""

    lag_ms: int
    """Milliseconds since the first merge after the subscription's receipt; 0: there is no such merge."""
    lag_ratio: float
    """``lag_ms`` divided by the contract's ``subscription_hold_s_max`` (in ms)."""
    holds: bool
    """Whether the subscription keeps objects; False once its lag has reached ``subscription_hold_s_max``."""
    segments: int
    """Number of WAL segments that this subscription keeps beyond the history window.  Other subscriptions may keep
    them too."""
    versions: int
    """Number of table versions that this subscription keeps beyond the version window.  Other subscriptions may keep
    them too.  They are counted once an hour."""


@dataclass(slots=True)
class KnownSubscriptions:
    """Cache of the subscriptions that a flusher read last, and of their list of names."""

    names: Version | None = None
    of: dict[str, _Read] = field(default_factory=dict)
    """Subscriptions as last read, by the subscription's id."""
    segments: Mapping[str, int] = field(default_factory=dict)
    """Number of segments that each subscription keeps beyond the history window, by the subscription's name."""


def read_holding(
    context: FlusherContext,
    known: KnownSubscriptions,
    in_force: InForce,
    histories: Mapping[Region, History],
    now_ms: int,
) -> Holding:
    """Return which generations of these regions, and of regions of former topics, subscriptions keep now.  A table
    without subscriptions costs one request.
    """
    found: dict[str, StoredSubscription | Corrupt]
    try:
        names = _read_names(context, known)
    except Corrupt as fault:
        found = {"": fault}
    else:
        by_name = sorted(names.ids.items())
        read = context.tasks.map(lambda item: _read_one(context, known, *item), by_name) if by_name else []
        known.of = {id: each for (_, id), each in zip(by_name, read, strict=True)}
        found = {name: known.of[id].stored for name, id in by_name}
    if not found:
        return HOLDS_NOTHING
    regions = former_regions(found, in_force, context.contract)
    if not regions:
        return holding_of(found, histories, context.contract, now_ms)
    former = read_sound_histories(context, regions, in_force)  # nothing of a former topic changes any more
    holding = holding_of(found, {**histories, **former.of}, context.contract, now_ms)
    return replace(holding, damaged=former.damaged)


def _read_names(context: FlusherContext, known: KnownSubscriptions) -> SubscriptionNames:
    """Read the list of names.  No version of the list is ever deleted.  So the table has a list if version 1 exists."""
    family = names_family(context.contract.making)
    if known.names is None and context.store.get(family.key(FIRST_VERSION)) is not None:
        known.names = newest_version(context.store, family, tasks=context.tasks)
    elif known.names is not None:
        known.names = newest_behind(context.store, family, known.names)
    return decoded_names(known.names, context.contract.making)


def _read_one(context: FlusherContext, known: KnownSubscriptions, name: str, id: str) -> _Read:
    before, now = known.of.get(id), context.clock.monotonic()
    family = subscription_family(id, context.contract.making)
    fresh = before is not None and before.found is not None and now - before.at < _KNOWN_S
    found = newest_version(context.store, family, before.found if before and fresh else None, context.tasks)
    if before is not None and found == before.found:
        return _Read(now, found, before.stored)
    try:
        return _Read(now, found, decoded_subscription(found, name, id, context.contract.making))
    except Corrupt as fault:
        return _Read(now, found, fault)


def old_objects(context: FlusherContext, known: KnownSubscriptions, now_ms: int) -> tuple[str, ...]:
    """Return the keys of old objects of subscriptions (module docstring), in the order in which they may be deleted."""
    listed = context.store.list(paths.SUBSCRIPTIONS)
    if not listed:
        return ()
    check_present(context.store, context.contract)
    try:
        ids = set(_read_names(context, known).ids.values())
    except Corrupt:
        return ()
    return tuple(_old(context, listed, ids, now_ms))


def _old(context: FlusherContext, listed: Iterable[ObjectInfo], ids: set[str], now_ms: int) -> Iterable[str]:
    families: dict[str, list[tuple[int, ObjectInfo]]] = {}
    for info in listed:
        found = paths.parse_subscription_version(info.key)
        if found is None and paths.parse_subscription_names(info.key) is None:
            continue
        if paths.subscriptions_making(info.key) != context.contract.making:
            yield info.key
        elif found is not None:
            families.setdefault(found[0], []).append((found[1], info))
    for id, versions in families.items():
        versions.sort(key=lambda version: version[0])
        if id in ids:
            family = subscription_family(id, context.contract.making)
            yield from old_versions(context.store, family, [info for _, info in versions], _is_old, VERSIONS_KEPT)
        elif now_ms - versions[-1][1].modified_ms >= NAMELESS_KEPT_MS:
            yield from (info.key for _, info in versions)


def _is_old(modified_ms: int, newest_ms: int) -> bool:
    return newest_ms - modified_ms >= VERSIONS_KEPT_MS


def kept_of(
    holding: Holding, contract: Contract, segments: Mapping[str, int], versions: Mapping[str, int]
) -> dict[str, KeptBySubscription]:
    """Return the lag of each subscription, and the numbers of segments and versions that it keeps, by name.

    ``segments`` and ``versions``: these numbers by subscription name; a missing name counts as 0.
    """
    bound_ms = max(contract.subscription_hold_s_max * 1000, 1)
    return {
        name: KeptBySubscription(
            held.lag_ms, held.lag_ms / bound_ms, held.after is not None, segments.get(name, 0), versions.get(name, 0)
        )
        for name, held in holding.of.items()
    }


def kept_segments(
    holding: Holding, histories: Mapping[Region, History], over: Mapping[Region, GenerationRecord]
) -> dict[str, int]:
    """Return the number of segments that each subscription keeps beyond the history window, by name.  ``over``: for
    each region the newest generation whose history window is over.
    """
    if not any(held.after is not None for held in holding.of.values()):
        return {}
    kept = dict[LogId, Sequence]()
    free = dict[Region, list[GenerationRecord]]()
    for region, history in holding.former.items():  # no window keeps them
        free[region] = list(history.generations)
    for region, history in histories.items():
        upto = over[region].generation if region in over else Generation(0)
        for record in history.generations:
            if record.generation > upto:
                kept[record.log] = min(kept.get(record.log, record.first_sequence), record.first_sequence)
            else:
                free.setdefault(region, []).append(record)
    return {
        name: _segments(
            [r for region, records in free.items() for r in records if r.generation > held.after[region]], kept
        )
        for name, held in holding.of.items()
        if held.after is not None
    }


def _segments(records: Iterable[GenerationRecord], kept: Mapping[LogId, Sequence]) -> int:
    """Return the number of segments of these generations that are not kept anyway.  ``kept``: the first segment of
    each log that the history window keeps.
    """
    ranges = dict[LogId, tuple[int, int]]()
    for record in records:
        first, end = ranges.get(record.log, (int(record.first_sequence), 0))
        end_sequence = min(record.end_sequence or 0, kept.get(record.log, record.end_sequence or 0))
        ranges[record.log] = min(first, record.first_sequence), max(end, end_sequence)
    return sum(max(end - first, 0) for first, end in ranges.values())
