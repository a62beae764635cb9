"""Expiry: hide merged rows whose time to live is over, in bounded rounds.

Guarantees
 1. A row is hidden only if the time in its ``ttl_column``, in the version that the round read, is more than ``ttl_s``
    ago by this process's wall clock.  A null never expires.  Rows that are not merged yet are left alone: they expire
    once they are merged.
 2. The commit conflicts with every commit in between that changed one of its fragments.  So a row that a merge has
    replaced or deleted meanwhile is not hidden twice.  A row that the merge has added is not hidden at all, because
    it lies in another fragment.
 3. If a key's row expires while a newer record of the key waits, nothing is lost: the merge adds the newer row.
 4. A round hides at most ``rows_max`` rows.  Rounds read the column of a fragment once.  They read it again only if
    the oldest time left in it may have expired, or if hidden rows may have come back.
 5. The commit carries no watermarks.  If the reply is lost, the commit is found by its uuid.

A row is hidden ``ttl_s`` after its time.  A row that is merged later than that is hidden soon after its merge.  The
delay is at most ``flusher.expiry_interval_s`` plus the duration of the rounds.  Until then readers see the row.

Steps of ``expire_next``
 1. Check that the contract is still the newest; pin V, check that it is the contract's table; refuse while the merge
    that set its watermarks is not finished.
 2. For each fragment that may have expired rows: scan the column, and take the rows with a time below the threshold,
    until there are ``rows_max``.
 3. Write deletion vectors.
 4. ONE commit from V.
 5. Committed: go on.  Conflict: nothing landed, plan again.  Unknown: look for the uuid in the versions above V.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import ObjectCorrupt, VersionGone
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.clock import Clock
from lancewal_core.process.failpoints import point
from lancewal_core.rows.ttl import Ttl
from lancewal_core.table.protocol import ROW_ADDRESS, Fragment, PinnedTable, StoredTable, hidden_by
from lancewal_flusher.commit.other_commits import send_expiry
from lancewal_flusher.commit.send import Refused, Why, hide, newest_finished
from lancewal_flusher.context import FlusherContext, check_contract

ROUND_ROWS = 1_000_000
"""Largest number of rows that one round hides.  They take 8 MB of row addresses, and the commit delays merges hardly at
all."""
_NEVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Expired:
    """A round of expiry that landed.  ``more``: the round ended because it had ``rows_max`` rows, so more rows may
    have expired.
    """

    version: TableVersion
    rows: int
    fragments: int
    more: bool


ExpiryResult = Expired | Refused | None
"""Result of a round of expiry; None: no row has expired."""


@dataclass(frozen=True, slots=True)
class Known:
    """Known bound: in ``version`` no live row of the fragment has a time below ``time``, in the column's unit."""

    time: int
    version: TableVersion
    fragment_id: int
    hidden_by: object
    """Deletion file of the fragment, as Lance describes it; None if no row is hidden."""


@dataclass(slots=True)
class OldestTimes:
    """A lower bound of the times of live rows, for each fragment, by its data files.  Files never change, and rows are
    only removed.

    A restore brings rows back.  So a bound holds only while the fragment has the same deletion file, or one that
    hides at least the same rows.
    """

    known: dict[tuple[str, ...], Known] = field(default_factory=dict)

    def is_young(
        self, fragment: Fragment, pinned: PinnedTable, threshold: int, at: Callable[[int], PinnedTable]
    ) -> bool:
        """Whether the known bounds show that no live row is below ``threshold``.  ``at`` opens a version."""
        known = self.known.get(fragment.files)
        if known is None or known.time < threshold or not _hides_as_much(fragment, pinned, known, at):
            return False
        self.learn(fragment, pinned, known.time)  # the version before may be cleaned up
        return True

    def learn(self, fragment: Fragment, pinned: PinnedTable, time: int) -> None:
        """Record that in ``pinned`` no live row of the fragment is older than ``time``."""
        hidden = hidden_by(pinned.fragment_json(fragment.fragment_id))
        self.known[fragment.files] = Known(time, pinned.version, fragment.fragment_id, hidden)

    def forget_others(self, fragments: list[Fragment]) -> None:
        """Remove the bounds of all other fragments."""
        live = {f.files for f in fragments}
        self.known = {files: value for files, value in self.known.items() if files in live}


def _hides_as_much(fragment: Fragment, pinned: PinnedTable, known: Known, at: Callable[[int], PinnedTable]) -> bool:
    """Whether ``pinned`` hides all rows of the fragment that were hidden when ``known`` was recorded.  False if these
    can no longer be read.
    """
    if known.hidden_by is None or known.hidden_by == hidden_by(pinned.fragment_json(fragment.fragment_id)):
        return True
    try:
        before = at(known.version).hidden_rows(known.fragment_id)
    except (VersionGone, ObjectCorrupt):
        return False
    return bool(np.isin(before, pinned.hidden_rows(fragment.fragment_id)).all())


def expire_next(context: FlusherContext, ttl: Ttl, oldest: OldestTimes, rows_max: int = ROUND_ROWS) -> ExpiryResult:
    """Hide rows that have expired, in one round.

    Raises ``ContractMismatch`` if the contract has changed, because rows may now expire at another time, or not at all.
    """
    # Step 1
    check_contract(context)
    pinned = newest_finished(context)
    if isinstance(pinned, Refused):
        return pinned
    try:
        # Step 2
        hidden, more = _choose(context.table, pinned, ttl, _threshold(context.clock, pinned, ttl), oldest, rows_max)
        if not hidden:
            return None
        # Step 3
        with point("dv.write", fragments=len(hidden)):
            changed = hide(pinned, hidden)
    except VersionGone as error:
        return Refused(f"version {pinned.version} was cleaned up meanwhile: {error}", Why.CLEANED_UP)
    # Steps 4 and 5
    landed = send_expiry(context, pinned, changed)
    if isinstance(landed, Refused):
        return landed
    return Expired(landed, sum(len(rows) for rows in hidden.values()), len(hidden), more)


def count_expired(table: StoredTable, clock: Clock, ttl: Ttl) -> int:
    """Return how many live rows of the newest version have expired.  Changes nothing."""
    pinned = table.newest()
    threshold = _threshold(clock, pinned, ttl)
    numbers = [f.fragment_id for f in pinned.fragments()]
    return sum(int((times < threshold).sum()) for times, _ in _times(pinned, ttl, numbers))


def _choose(
    table: StoredTable, pinned: PinnedTable, ttl: Ttl, threshold: int, oldest: OldestTimes, rows_max: int
) -> tuple[dict[int, npt.NDArray[np.int64]], bool]:
    """Return the expired physical rows by fragment, and whether there may be more (step 2)."""
    fragments = list(pinned.fragments())
    oldest.forget_others(fragments)
    at = cache(table.at)
    hidden: dict[int, npt.NDArray[np.int64]] = {}
    left = rows_max
    for fragment in fragments:
        if oldest.is_young(fragment, pinned, threshold, at):
            continue
        if left <= 0:
            return hidden, True
        young, rows, cut = _NEVER, [], False
        for times, addresses in _times(pinned, ttl, [fragment.fragment_id]):
            old = times < threshold
            young = min(young, int(times[~old].min(initial=_NEVER)))
            found = addresses[old][:left]
            cut = cut or len(found) < int(old.sum())
            left -= len(found)
            rows.append((found & np.uint64(0xFFFFFFFF)).astype(np.int64))
        expired = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        if len(expired):
            hidden[fragment.fragment_id] = expired  # known to be gone only once that has landed: it is read once more
        elif not cut:
            oldest.learn(fragment, pinned, young)
        if cut:
            return hidden, True
    return hidden, False


def _threshold(clock: Clock, pinned: PinnedTable, ttl: Ttl) -> int:
    return ttl.threshold(pinned.schema.field(ttl.column).type, clock.now_ms())


def _times(
    pinned: PinnedTable, ttl: Ttl, fragment_ids: list[int]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]]:
    """Yield the times (integers in the column's unit) and row addresses of live rows whose time is not null."""
    type_ = pinned.schema.field(ttl.column).type
    whole = pa.int32() if pa.types.is_date32(type_) else pa.int64()
    for batch in pinned.scan([ttl.column], fragment_ids=fragment_ids, with_row_address=True, batch_rows=65_536):
        known = batch.filter(batch.column(ttl.column).is_valid())
        times = known.column(ttl.column).cast(whole).to_numpy(zero_copy_only=False).astype(np.int64)
        yield times, known.column(ROW_ADDRESS).to_numpy(zero_copy_only=False).astype(np.uint64)
