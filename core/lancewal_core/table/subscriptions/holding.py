"""Generations and versions that garbage collection must keep for subscriptions.  Nothing here reads or writes.

To *hold* an object is to keep it from garbage collection.  A *former topic* is one from which the table was moved to
its present topic.

1. A subscription holds all generations that are not merged in the table version of its receipt, and all table
   versions from its ``versions_from`` on.  These include generations of a former topic if the receipt is older than
   the move.
2. The *lag* of a subscription is the time since the first of these generations was merged.  Before that merge, the
   receipt's state is the newest in the table, and nothing that the subscription needs would be deleted anyway.
3. A subscription holds nothing once its lag reaches ``subscription_hold_s_max``, or if something that it needs is
   trimmed.
4. A subscription that cannot be read may need anything.  So the windows are then at least ``subscription_hold_s_max``.

The windows do not keep the log of a former topic.  The log is deleted once no subscription holds it.  All generations
of a former topic count as merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lancewal_core.errors import Corrupt
from lancewal_core.names.ids import Generation, Region, TableVersion
from lancewal_core.region.history import History
from lancewal_core.table.contract import Contract
from lancewal_core.table.subscriptions.needs import NO_MARK, is_behind, merged_ms_of
from lancewal_core.table.subscriptions.stored import StoredSubscription
from lancewal_core.table.watermarks import InForce, Watermark


@dataclass(frozen=True, slots=True)
class Held:
    """Data that one subscription holds at the time of a garbage collection round."""

    lag_ms: int
    """Milliseconds since the first merge after the subscription's receipt; 0: there was no such merge."""
    versions_from: TableVersion
    """Lowest table version that the subscription needs."""
    after: Mapping[Region, Generation] | None
    """Newest generation of each region that the subscription does not need.  It holds all later ones.  None: it holds
    nothing."""


@dataclass(frozen=True, slots=True)
class Holding:
    """All data that the subscriptions of a table keep from garbage collection."""

    of: Mapping[str, Held] = field(default_factory=dict)
    faults: Mapping[str, Corrupt] = field(default_factory=dict)
    """Name of a subscription that cannot be read to its error.  The name ``""`` stands for the list of
    subscriptions."""
    former: Mapping[Region, History] = field(default_factory=dict)
    """Held generations of former topics, by region."""
    damaged: Mapping[Region, Corrupt] = field(default_factory=dict)
    """Region of a former topic whose state cannot be read, to the error.  Everything of such a region must be kept."""

    def free_up_to(self, region: Region) -> Generation | None:
        """Return the newest generation of the region that no subscription holds; None: no subscription holds any."""
        found = [held.after[region] for held in self.of.values() if held.after is not None and region in held.after]
        return min(found, default=None)

    @property
    def versions_from(self) -> TableVersion | None:
        """Lowest table version that a subscription holds; None: no subscription holds any."""
        return min((held.versions_from for held in self.of.values() if held.after is not None), default=None)

    def window_ms(self, window_ms: int, contract: Contract) -> int:
        """Return how long a window keeps data, in milliseconds.

        This is ``window_ms``, but at least ``subscription_hold_s_max`` if a subscription cannot be read (rule 4).
        """
        return max(window_ms, contract.subscription_hold_s_max * 1000) if self.faults else window_ms


HOLDS_NOTHING = Holding()


def former_regions(
    stored: Mapping[str, StoredSubscription | Corrupt], in_force: InForce, contract: Contract
) -> list[Region]:
    """Return the regions of former topics of which a subscription may need a merged generation."""
    former = in_force.regions.keys() - set(contract.regions)
    if not former:
        return []
    unread = any(not isinstance(found, StoredSubscription) for found in stored.values())
    marks = [found.marks for found in stored.values() if isinstance(found, StoredSubscription)]
    return sorted(r for r in former if unread or any(is_behind(of, in_force, r) for of in marks))


def holding_of(
    stored: Mapping[str, StoredSubscription | Corrupt],
    histories: Mapping[Region, History],
    contract: Contract,
    now_ms: int,
) -> Holding:
    """Return what the subscriptions ``stored``, by name, hold.

    ``histories``: the merged generations of each region of the contract and of each of ``former_regions``."""
    records = {region: history.generations for region, history in histories.items()} if stored else {}
    regions, bound_ms = set(contract.regions), contract.subscription_hold_s_max * 1000
    of: dict[str, Held] = {}
    faults: dict[str, Corrupt] = {}
    for name, found in stored.items():
        if not isinstance(found, StoredSubscription):
            faults[name] = found
            continue
        marks, versions_from = found.marks, TableVersion(found.versions_from)
        after, since = dict[Region, Generation](), list[int]()
        lost = False
        for region, history in histories.items():
            generation = _after(history, marks.get(region, NO_MARK))
            if generation is None:
                lost = True
                continue
            after[region] = generation
            at = generation - history.state.trimmed_generation
            first = records[region][at : at + 1]
            merged_ms = merged_ms_of(first[0], former=region not in regions) if first else None
            since += [] if merged_ms is None else [merged_ms]
        lag_ms = max(now_ms - min(since), 0) if since else 0
        over = lost or (bool(since) and lag_ms >= bound_ms)
        of[name] = Held(lag_ms, versions_from, None if over else after)
    holding = Holding(of, faults)
    former = {r: _held(r, h, holding, now_ms - bound_ms) for r, h in histories.items() if r not in regions}
    return replace(holding, former={r: h for r, h in former.items() if h.generations})


def _held(region: Region, history: History, holding: Holding, since_ms: int) -> History:
    """Return the held generations of a former topic's region.

    If a subscription cannot be read, these include all generations that were merged after ``since_ms``."""
    free = history.state.trimmed_generation
    up_to = holding.free_up_to(region)
    for record in history.generations:
        young = bool(holding.faults) and (merged_ms_of(record, former=True) or 0) > since_ms
        if young or (up_to is not None and record.generation > up_to):
            break
        free = record.generation
    return History(replace(history.state, trimmed_generation=free), history.pages)


def _after(history: History, mark: Watermark) -> Generation | None:
    """Return the newest generation that a subscription with this ``mark`` does not need; None if a needed one is
    trimmed.  Trimmed generations without records are not needed (``generations_behind``)."""
    state = history.state
    if state.trimmed_generation <= mark.generation:
        return mark.generation
    return state.trimmed_generation if state.trimmed == mark.next else None
