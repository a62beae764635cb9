"""Generations and versions that garbage collection must keep for subscriptions.  Nothing here reads or writes.

1. A subscription holds all generations after those that its version has merged, and all versions from its lowest on.
   Generations of a former topic are among them: records of both topics follow its receipt.
2. Its *lag* is the time since the first of these generations was merged.  Before that merge its state is the newest in
   the table, and nothing that it needs would be deleted anyway.
3. Once the lag reaches ``subscription_hold_s_max``, it holds nothing.  Nor does it if something that it needs is
   trimmed.
4. A subscription that cannot be read may hold anything.  So the windows are then at least as long as the bound.

No window keeps the log of a former topic: it is deleted once no subscription holds it.  All its generations are merged.
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
    """One subscription at the time of a garbage collection round."""

    lag_ms: int
    """Milliseconds since the first merge after its state; 0: there is none."""
    versions_from: TableVersion
    after: Mapping[Region, Generation] | None
    """Newest generation of each region that it does not need; None: it holds nothing."""


@dataclass(frozen=True, slots=True)
class Holding:
    """All data that the subscriptions of a table keep from garbage collection."""

    of: Mapping[str, Held] = field(default_factory=dict)
    faults: Mapping[str, Corrupt] = field(default_factory=dict)
    """Subscriptions that cannot be read, by name; a list that cannot be read has the name ``""``."""
    former: Mapping[Region, History] = field(default_factory=dict)
    """Generations of former topics that are held."""
    damaged: Mapping[Region, Corrupt] = field(default_factory=dict)
    """Regions of former topics of which a subscription may need anything, since their states cannot be read."""

    def free_up_to(self, region: Region) -> Generation | None:
        """Return the newest generation of the region that no subscription needs; None: none needs any."""
        found = [held.after[region] for held in self.of.values() if held.after is not None and region in held.after]
        return min(found, default=None)

    @property
    def versions_from(self) -> TableVersion | None:
        """Lowest table version that a subscription needs; None: none needs any."""
        return min((held.versions_from for held in self.of.values() if held.after is not None), default=None)

    def window_ms(self, window_ms: int, contract: Contract) -> int:
        """Return how long a window is, given its length ``window_ms`` without subscriptions (rule 4)."""
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
    """Return what these subscriptions keep.  ``histories`` must include those of ``former_regions``."""
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
    """Return the generations of a former topic's region that are held.  If a subscription cannot be read, these are also
    all that were merged after ``since_ms``."""
    free = history.state.trimmed_generation
    up_to = holding.free_up_to(region)
    for record in history.generations:
        young = bool(holding.faults) and (merged_ms_of(record, former=True) or 0) > since_ms
        if young or (up_to is not None and record.generation > up_to):
            break
        free = record.generation
    return History(replace(history.state, trimmed_generation=free), history.pages)


def _after(history: History, mark: Watermark) -> Generation | None:
    """Return the newest generation that is not needed; None if a needed one is trimmed.  Trimmed generations without
    records are not needed (``generations_behind``)."""
    state = history.state
    if state.trimmed_generation <= mark.generation:
        return mark.generation
    return state.trimmed_generation if state.trimmed == mark.next else None
