"""Breaks of a table's history: positions on both sides of a break name a state that never existed.

==================================  ============================================================================
break                               where
==================================  ============================================================================
partitions added                    the positions at which, by the contract, the former number of partitions ends
topic recreated                     after all records of the former topic (``topic_cuts``)
restore whose rows were dropped     the watermarks of the version that the restore made
bulk load                           the watermarks of its version: its rows are older than every record, and were
                                    not there before
==================================  ============================================================================

Only commits after the version that is read can divide the positions.  The last such commit is the one that merged the
last record below the positions.

A delta must never have records of one key from two regions, since nothing orders them.  A contract change that moves
keys between regions is therefore made only after every earlier record is merged.  The delta of the original read
never spans such a change.  The delta of an older version that replaces that read's version might
(``spans_a_change``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from lancewal_core.errors import (
    InvalidInput,
    ObjectMissing,
    OutsideHistoryWindow,
    PlanStale,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region, TableVersion
from lancewal_core.region.history import generations_behind
from lancewal_core.region.states import PageLook
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import TransactionInfo
from lancewal_core.table.watermarks import PROPERTY_LOAD, InForce, kind_of
from lancewal_reader.plan.at_version import versions_left
from lancewal_reader.plan.strong import PlanContext

_NAMED = 3
Cut = Mapping[Region, Position]


@contextmanager
def kept_of(contract: Contract, region: Region) -> Iterator[None]:
    """For a region that the contract no longer has, raise ``OutsideHistoryWindow`` instead of ``PlanStale`` or
    ``ObjectMissing``.

    Garbage collection records trimming only for regions of the contract.  The log of any other region is deleted once
    no subscription needs it.
    """
    try:
        yield
    except (PlanStale, ObjectMissing) as error:
        if region in contract.regions:
            raise
        raise OutsideHistoryWindow(
            f"partition {region.topic}-{region.partition} is of a topic that was recreated since. The read needs "
            f"records of the former one, which are not kept any more: {error}",
            region=region.name,
        ) from error


def spans_a_change(
    contracts: Sequence[Contract], merged: Mapping[Region, Position], cut: Mapping[Region, Position]
) -> bool:
    """Whether some records from ``merged`` to ``cut`` are before a contract change that moves keys, and others after
    it.  A region that is not in ``merged`` begins at 0.
    """
    topic_ids = {region.topic_id for region in _behind(merged, cut)}
    return len(topic_ids) > 1 or any(before and after for before, after in _sides(contracts, merged, cut))


def lies_before_a_change(
    contracts: Sequence[Contract], merged: Mapping[Region, Position], cut: Mapping[Region, Position]
) -> bool:
    """Whether a record from ``merged`` to ``cut`` is older than a contract change that moves keys.  Other partitions
    owned the keys then (``keys.origin``).
    """
    other_topic = any(region.topic_id != contracts[-1].topic_id for region in _behind(merged, cut))
    return other_topic or any(before for before, _ in _sides(contracts, merged, cut))


def _behind(merged: Mapping[Region, Position], cut: Mapping[Region, Position]) -> dict[Region, tuple[int, int]]:
    return {region: (merged.get(region, 0), end) for region, end in cut.items() if end > merged.get(region, 0)}


def _sides(
    contracts: Sequence[Contract], merged: Mapping[Region, Position], cut: Mapping[Region, Position]
) -> Iterator[tuple[bool, bool]]:
    """Yield for each change whether records are before it, and whether records are after it."""
    for topic_id, altered_at in {(c.topic_id, c.altered_at) for c in contracts if c.altered_at}:
        ends = {partition: int(end) for partition, end in enumerate(altered_at)}
        ours = {r.partition: range_ for r, range_ in _behind(merged, cut).items() if r.topic_id == topic_id}
        before = any(first < ends.get(partition, 0) for partition, (first, _) in ours.items())
        after = any(end > ends.get(partition, 0) for partition, (_, end) in ours.items())
        yield before, after


def topic_cuts(contracts: list[Contract], cut: Cut, ends: Cut) -> Cut:
    """Return the cut without topics that did not exist yet.  ``ends``: ends of the regions of former topics.

    Raises ``InvalidInput`` if the cut has records of a topic, but not all records of a topic before it.
    """
    topics = {contract.topic_id: contract for contract in contracts}
    for number, topic_id in enumerate(topics):
        left = [r for r, end in ends.items() if r.topic_id == topic_id and cut.get(r, end) < end]
        if not left:
            continue
        later = list(topics.values())[number + 1 :]
        if any(cut.get(r, 0) > (contract.start_of(r.partition) or 0) for contract in later for r in contract.regions):
            raise _both_sides(
                f"the topic was recreated, at contract version {later[0].version}",
                f"{left[0].topic}-{left[0].partition} of the former topic up to {cut[left[0]]} of {ends[left[0]]}",
            )
        return {r: at for r, at in cut.items() if r.topic_id not in {c.topic_id for c in later}}
    return cut


def check_one_side(context: PlanContext, version: TableVersion, in_force: InForce, cut: Cut) -> None:
    """Raise ``InvalidInput`` if ``cut``, read from ``version``, has positions on both sides of a break.

    Raises ``VersionGone`` if a restore or bulk load after ``version`` lies before all positions of the cut.  Raises
    ``PlanStale`` and ``OutsideHistoryWindow`` like a plan of the cut.
    """
    for contract in context.contracts.up_to(context.contract):
        ends = {r: Position(at) for r, at in zip(contract.regions, contract.altered_at, strict=False)}
        if contract.altered_at:
            _check(f"partitions were added, at contract version {contract.version}", ends, cut, contract.topic_id)
    for at in range(version + 1, _last_merge(context, version, in_force, cut) + 1):
        what = _break_at(context, TableVersion(at))
        broken = None if what is None else context.watermarks.known_at(at)
        if what is None or broken is None:
            continue
        marks = broken.positions
        _check(what, marks, cut)
        if all(cut.get(region, 0) >= end for region, end in marks.items()):
            raise versions_left(context, f"{what}: no remaining version from then on is at or below these positions")


def _check(what: str, ends: Cut, cut: Cut, topic_id: str | None = None) -> None:
    ours = {r: at for r, at in cut.items() if topic_id in (None, r.topic_id)}
    before = next((r for r, at in ours.items() if at < ends.get(r, 0)), None)
    after = next((r for r, at in ours.items() if at > ends.get(r, 0)), None)
    if before is not None and after is not None:
        named = ", ".join(f"{r.topic}-{r.partition}: {at}" for r, at in sorted(ends.items())[:_NAMED])
        raise _both_sides(
            f"{what}, at the positions {named}",
            f"{before.topic}-{before.partition} at {ours[before]}, {after.topic}-{after.partition} at {ours[after]}",
        )


def _both_sides(what: str, where: str) -> InvalidInput:
    return InvalidInput(
        f"the point lies on both sides of a break: {what}. No read ever saw its positions together: {where}. "
        "Ask for positions on one side, for timestamp:..., or by a receipt"
    )


def _last_merge(context: PlanContext, version: TableVersion, in_force: InForce, cut: Cut) -> TableVersion:
    """Return the last version that merged a record between ``in_force`` and ``cut``.  If one of them is not merged
    yet, return the newest version.
    """
    last, newest = version, None
    behind = [region for region, at in sorted(cut.items()) if at > (in_force.position(region) or 0)]
    for region, state in context.states.read(behind, PageLook.AGAIN).items():  # the caller has read them
        begin = in_force.position(region) or Position(0)
        for record in generations_behind(context, region, state, in_force.generation(region), begin):
            if record.first >= cut[region]:
                break
            if record.merged_version is None and newest is None:
                newest = context.table.newest().version
            last = max(last, record.merged_version or newest or version)
    return last


def _break_at(context: PlanContext, version: TableVersion) -> str | None:
    """Return a description of the break that a version made; None if it made none.  The record of a person's decision
    shows a restore, even if the version is gone."""
    made = context.table.transaction(version)
    if isinstance(made, TransactionInfo):
        if PROPERTY_LOAD in made.properties:
            return f"bulk load at table version {version}"
        if made.restored is None:
            return None
    key = paths.merge_record(version, context.contract.making)
    data = context.store.get(key)
    if data is not None and kind_of(data, key) == "keep":
        return (
            f"restore at table version {version}, after which the rows merged since the restored version were dropped"
        )
    return None
