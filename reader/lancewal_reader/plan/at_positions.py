"""Plan a read at given positions, also between merges or in the WAL: the table that the records below them make.

Guarantees
 1. Per region the plan covers the positions up to those asked for exactly once, like the plan of a receipt
    (``at_receipt``).  Partitions that only an earlier contract has are included with all of their records.
 2. The plan uses the newest table version that holds nothing after the positions.  Commits of other programs are
    shown as far as that version has them.  The receipt names the version.

Steps
 1. Make a strong plan.  If the plan does not reach a position, raise ``InvalidInput``; a read that should wait uses
    ``at_least``.  If the plan's version has merged nothing after the positions, it is the version to use.
 2. Otherwise look for it among older versions, newest first, from the one before the first merge that goes beyond a
    position.
 3. If no such version is left, raise ``VersionGone``, which shows the merged positions of the oldest version.
 4. Positions on both sides of a break of the history are refused; the error names the break (``breaks``).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from lancewal_core.errors import InvalidInput, MergedPositionUnknown, PartitionCountChanged, TableRestored, VersionGone
from lancewal_core.names.ids import Position, Region, TableVersion
from lancewal_core.region.states import PageLook
from lancewal_core.table.contract import Contract
from lancewal_core.table.watermarks import InForce
from lancewal_reader.plan.at_receipt import plan_at
from lancewal_reader.plan.at_timestamp import again
from lancewal_reader.plan.at_version import check_of_table, versions_left
from lancewal_reader.plan.breaks import check_one_side
from lancewal_reader.plan.stand_in import is_at_or_below
from lancewal_reader.plan.strong import PlanContext, ReadPlan, check_contract, plan_strong
from lancewal_reader.point.receipt import Receipt

_NAMED = 3


def plan_at_positions(context: PlanContext, place: str, wanted: Mapping[int, Position]) -> ReadPlan:
    """Return the plan at the positions ``wanted``, one for each partition.

    Raises the errors of the module docstring, and those of ``plan_at``.
    """
    partitions = range(context.contract.partitions)
    wrong = sorted({*wanted} ^ {*partitions})
    if wrong:
        check_contract(context)  # a newer one has others
        raise InvalidInput(
            f"positions: partitions {wrong[:_NAMED]} have no position, or do not exist: give one position for each of the "
            f"partitions 0 to {len(partitions) - 1} of topic {context.contract.topic}"
        )
    newest = plan_strong(context)  # Step 1
    cut = {region: wanted[region.partition] for region in context.contract.regions}
    behind = [f"{r.topic}-{r.partition}: {newest.cut.get(r, 0)}" for r, at in cut.items() if at > newest.cut.get(r, 0)]
    if behind:
        raise InvalidInput(
            f"the table has not reached these positions yet: it is at {', '.join(behind[:_NAMED])}. To wait for "
            "records, give at_least"
        )
    return plan_at_cut(context, place, newest, {**closed_regions(newest, cut), **cut})


def closed_regions(newest: ReadPlan, regions: Container[Region]) -> dict[Region, Position]:
    """Return the merged positions of all regions that are not in ``regions``, the regions of the contract.  Only an
    earlier contract has these regions.
    """
    return {r: at for r, at in newest.in_force.positions.items() if r not in regions}


def plan_at_cut(context: PlanContext, place: str, newest: ReadPlan, cut: Mapping[Region, Position]) -> ReadPlan:
    """Return the plan at ``cut``, which ``newest`` must have reached.  Raises the errors of ``check_one_side`` and of
    ``plan_at``.
    """
    return plan_at(context, _receipt_at_cut(context, place, newest, cut))


def receipt_at_positions(
    context: PlanContext, place: str, newest: ReadPlan, wanted: Mapping[Region, Position]
) -> Receipt:
    """Return the receipt of a read at durable positions, without planning the read.  No log is read.

    ``newest``: a plan of the newest version, which needs no deltas.  ``wanted``: a durable position of each region of
    the contract.  The caller must know that reads of this table leave out no keys in conflict.  Raises the errors of
    the module docstring, and those of ``check_regions``.
    """
    check_regions(context.contract, wanted)
    return _receipt_at_cut(context, place, newest, {**closed_regions(newest, wanted), **wanted})


def check_regions(contract: Contract, wanted: Collection[Region]) -> None:
    """Raise ``PartitionCountChanged`` unless these are the regions of the contract.  Positions of one topic are
    meaningless for another topic, even if the partitions have the same numbers.
    """
    if {*wanted} != {*contract.regions}:
        raise PartitionCountChanged(
            "the table got more partitions, or another topic, after its positions were fetched. Fetch them again"
        )


def _receipt_at_cut(context: PlanContext, place: str, newest: ReadPlan, cut: Mapping[Region, Position]) -> Receipt:
    version, in_force = _version_below(context, newest, cut)
    again(context, lambda: check_one_side(context, version, in_force, cut))  # Step 4
    return Receipt(context.contract.uuid, version, dict(cut), place)


def _version_below(
    context: PlanContext, newest: ReadPlan, cut: Mapping[Region, Position]
) -> tuple[TableVersion, InForce]:
    if newest.in_force.exact and is_at_or_below(newest.in_force, cut):
        return newest.version, newest.in_force
    # Step 2
    beyond = [region for region, mark in newest.in_force.regions.items() if mark.next > cut.get(region, 0)]
    top = newest.version
    for region, state in context.states.read(beyond, PageLook.AGAIN).items():  # the caller has read them
        merges = [r.merged_version for r in state.generations if r.next is not None and r.next > cut.get(region, 0)]
        top = min([top, *(TableVersion(version) for version in merges if version is not None)])
    oldest = newest.version, newest.in_force
    for version in sorted((v for v in context.table.versions() if v < top), reverse=True):
        try:
            in_force = context.watermarks.at(version)
        except (VersionGone, MergedPositionUnknown, TableRestored):
            continue
        if in_force.exact and is_at_or_below(in_force, cut):
            try:
                pinned = context.table.at(version)
            except VersionGone:
                continue
            check_of_table(pinned, version)
            return version, in_force
        oldest = version, in_force
    raise versions_left(context, f"no remaining table version is at or below these positions{_merged(oldest)}")


def _merged(oldest: tuple[TableVersion, InForce]) -> str:
    marks = sorted(oldest[1].regions.items())[:_NAMED]
    return f" (version {oldest[0]} has merged {', '.join(f'{r.topic}-{r.partition} up to {m.next}' for r, m in marks)})"
