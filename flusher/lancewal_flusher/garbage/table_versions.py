"""Find versions of the Lance table that nobody needs any more, and remove them: step 7 of ``collect``.

Guarantees
 1. A version stays for the version window (at least the history window, and an hour) *after a newer one has come*, by
    the store's clock.  A version that was the newest at any time in the window is therefore there, and a receipt from
    then can be read.
 2. The newest merge and all versions above it stay, so the watermarks (W) stay known.  Nothing is removed while that
    merge is not finished.  A process that finishes it, or finds out whether its commit landed, may read lower
    versions.
 3. Nothing is removed while a flush that waits for its merge is older than three days, or was merged by a version
    that a restore took back.  Lance removes files that no version names once they are a week old, and a merge could
    name them meanwhile.  Nothing is removed while the state of a region is damaged, since its flushes are unknown.
    Nothing is removed if more than an hour has passed since the round read all this.
 4. Nothing is removed from a table whose regions are told by the bytes of record keys: the transactions of its
    versions say through which region a row came.
 5. No version is removed, and no snapshot dropped, while the name of a branch or tag cannot be read: what that branch
    or tag needs is unknown.
 6. No version goes that a subscription needs.  Subscriptions are read after the newest merge and the clock.  A round
    that misses a new subscription keeps the versions that were in the window when the subscription was made.  It also
    keeps all versions from the newest merge on.
 7. Lance itself removes the versions.  It keeps the newest, what a tag or a branch needs, and files that no version
    has named and that are younger than a week (``delete_unverified`` is never used).

Removing a version under a process has the same effect as a clean-up by a user.  A read that has pinned the version is
planned again.  A commit that was computed from the version is refused.  A read at this version ends with
``VersionGone``.

There is one listing an hour, in a round of garbage collection.  The other rounds send no request here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lancewal_core.errors import Corrupt
from lancewal_core.names.ids import TableVersion
from lancewal_core.region.history import SoundHistories
from lancewal_core.region.state import GenerationState
from lancewal_core.table.presence import check_present
from lancewal_core.table.subscriptions.holding import Holding
from lancewal_core.table.subscriptions.needs import VERSION_WINDOW_MIN_MS, version_window_ms
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.commit.send import is_finished
from lancewal_flusher.context import FlusherContext

LOOKED_AFTER_S = 3600.0
WAITING_MAX_MS = 3 * 24 * 3600 * 1000
"""Age in milliseconds of a waiting flush from which on no version is removed.  It is far below the week after which
Lance removes files that no version names."""


@dataclass(slots=True)
class VersionsSeen:
    """State that a flusher keeps between rounds.  ``looked``: when ``expire_versions`` last searched for due
    versions, in monotonic seconds.  A version is *due* if no guarantee keeps it.

    The limits are fields because simulations shorten the hour.
    """

    every_s: float = LOOKED_AFTER_S
    window_min_ms: int = VERSION_WINDOW_MIN_MS
    looked: float | None = None
    held: frozenset[TableVersion] = frozenset()
    """Due versions that Lance kept, because a tag or a branch needs them."""
    subscribed: Mapping[str, int] = field(default_factory=dict)
    """Number of older versions that each subscription holds, by name."""
    fault: Corrupt | None = None
    """Error of reading the names of tags and branches, because of which nothing is removed; None: all can be read."""


@dataclass(frozen=True, slots=True)
class VersionsDue:
    """Versions that may be removed now, oldest first.  There are none while a guarantee lets all versions stay."""

    versions: tuple[TableVersion, ...]
    held: Mapping[str, int] = field(default_factory=dict)
    """Number of older versions that each subscription holds, by name."""


def due(
    stored: Mapping[TableVersion, int], newest_merge: TableVersion, now_ms: int, window: int
) -> tuple[TableVersion, ...]:
    """Return the versions below the newest merge that are older than the version that was newest when the window
    began (guarantees 1 and 2).  ``stored``: when each version was stored.  Times are in ms.
    """
    before = [version for version, made_ms in stored.items() if made_ms <= now_ms - window]
    if not before:
        return ()
    # By number, not by time: of two stored at once, or by clocks that differ, the higher number is the newer.
    bound = min(max(before), newest_merge)
    younger = [version for version, made_ms in stored.items() if made_ms > now_ms - window]
    return tuple(sorted(version for version in stored if version < min([bound, *younger])))


def find_due(
    context: FlusherContext,
    in_force: InForce,
    kept: SoundHistories,
    now_ms: int,
    holding: Holding,
    least: int = VERSION_WINDOW_MIN_MS,
) -> VersionsDue:
    """Find the versions that ``expire_versions`` would ask Lance to remove now.  Nothing is written.  ``least``: the
    shortest version window, in ms.
    """
    if not context.contract.rows_tell_partition:
        return VersionsDue(())
    stored = context.table.stored_versions()
    window = version_window_ms(context.contract, least)
    over = due(stored, in_force.version, now_ms, window)
    found = due(stored, in_force.version, now_ms, holding.window_ms(window, context.contract))
    held = holding.versions_from
    found = tuple(version for version in found if held is None or version < held)
    by_name = {
        name: sum(version >= each.versions_from for version in over)
        for name, each in holding.of.items()
        if each.after is not None
    }
    return VersionsDue(found if found and _may_go(context, in_force, kept, now_ms) else (), by_name)


def _may_go(context: FlusherContext, in_force: InForce, kept: SoundHistories, now_ms: int) -> bool:
    """Return whether versions may be removed now (guarantees 2 and 3)."""
    if kept.damaged:
        return False
    for region, history in kept.of.items():
        for record in history.generations:
            if record.generation <= in_force.generation(region):
                continue
            if record.state is GenerationState.MERGED:
                return False  # a restore took the merge of its flush back
            if record.state is GenerationState.FLUSHED and now_ms - (record.flushed_at_ms or 0) > WAITING_MAX_MS:
                return False  # a merge may still name files that Lance would remove
    return is_finished(context, in_force)


def is_time(context: FlusherContext, seen: VersionsSeen) -> bool:
    """Whether an hour has passed since ``expire_versions`` last searched for due versions, or the last search met
    ``fault``.
    """
    return seen.looked is None or seen.fault is not None or context.clock.monotonic() - seen.looked >= seen.every_s


def expire_versions(
    context: FlusherContext,
    seen: VersionsSeen,
    in_force: InForce,
    kept: SoundHistories,
    now_ms: int,
    holding: Holding,
) -> tuple[TableVersion, ...]:
    """Remove the versions that are due, and return those that were removed.  Remove nothing if all of them are known
    to be kept by tags or branches.
    """
    if seen.fault is not None:
        return ()
    found = find_due(context, in_force, kept, now_ms, holding, seen.window_min_ms)
    seen.subscribed = found.held
    seen.looked = context.clock.monotonic()
    if seen.held.issuperset(found.versions):
        return ()
    # While the process slept, a week may have passed.  Lance would remove the files of a merge that was being made then.
    if context.clock.now_ms() - now_ms > VERSION_WINDOW_MIN_MS:
        return ()
    check_present(context.store, context.contract)  # another table would lose its versions of these numbers
    context.table.remove_versions(found.versions)
    seen.held = frozenset(found.versions) & context.table.stored_versions().keys()
    return tuple(version for version in found.versions if version not in seen.held)
