"""Plan a read at a point of any kind.

A named snapshot is read from its branch alone, whatever has become of the versions and log entries that it was made from.

Guarantees of a snapshot
 1. The rows are those of a read at the snapshot's receipt, which is also the receipt of this read.  Otherwise the
    read ends with a named error.
 2. The plan looks up the branch by its name.  It reads nothing of the WAL or of the region states.

A snapshot that is still being made is not found.  Later commits of a user to the branch are not read: the plan pins
the version of the branch that holds the snapshot.
"""

from __future__ import annotations

from typing import assert_never

from lancewal_core.errors import InvalidInput, OutsideHistoryWindow, SnapshotMissing, VersionGone
from lancewal_core.names.ids import Generation, TableVersion
from lancewal_core.table.contract import Contract
from lancewal_core.table.snapshots import snapshot_of, snapshots_there
from lancewal_core.table.watermarks import InForce, Watermark
from lancewal_reader.plan.at_positions import plan_at_positions
from lancewal_reader.plan.at_receipt import plan_at
from lancewal_reader.plan.at_record_time import plan_at_record_time
from lancewal_reader.plan.at_timestamp import plan_at_timestamp
from lancewal_reader.plan.at_version import plan_at_version
from lancewal_reader.plan.strong import OnBranch, PlanContext, ReadPlan
from lancewal_reader.point.at import AtCut, AtPositions, AtRecordTime, AtSnapshot, AtTimestamp, AtVersion, Point
from lancewal_reader.point.receipt import Receipt


def plan_at_point(context: PlanContext, at: Point, place: str) -> ReadPlan:
    """Return the plan of a point.  Raises the errors of the plan for this kind of point, and ``InvalidInput`` for a
    receipt of another ``place``.
    """
    match at:
        case AtSnapshot():
            return _plan_at_snapshot(context, at.name)
        case AtPositions():
            return plan_at_positions(context, place, dict(at.by_partition))
        case AtTimestamp():
            return plan_at_timestamp(context, place, at.ms)
        case AtRecordTime():
            return plan_at_record_time(context, place, at.ms)
        case Receipt():
            at.check_table(context.contract.uuid, place)
            plan = plan_at(context, at)
            if at.left_out and plan.version != at.version:
                raise order_not_told(at, plan)
            return plan
        case AtVersion():
            return plan_at_version(context, at.number)
        case AtCut():
            return _plan_at_cut(context, at, place)
        case _:
            assert_never(at)


def _plan_at_cut(context: PlanContext, at: AtCut, place: str) -> ReadPlan:
    """Return the plan of a table in a cut.  The errors name the cut.

    Raises ``CutMissing`` if the table is not the one of the cut.  Raises it too if the snapshot of a kept cut is gone
    or was made again.  Raises ``VersionGone`` or ``OutsideHistoryWindow`` if the table's windows no longer hold the
    state that a moving cut names.
    """
    check_uuid_of_cut(context.contract, at, place)
    try:
        plan = plan_at_point(context, at.point, place)
    except (SnapshotMissing, InvalidInput) as error:  # it is gone, or another program changed what it says
        raise at.incomplete(f"The state is not there: {error}") from error
    except (VersionGone, OutsideHistoryWindow) as error:
        raise type(error)(
            f"number {at.number} of cut {at.name} can no longer be read in this table: {error}. The history window is "
            f"{context.contract.history_window_s} s, and the version window {context.contract.version_window_s} s. Read the "
            "cut's newest number, or keep a cut by `lancewal cut make`",
            **error.where,
        ) from error
    if plan.branch is not None and plan.branch.receipt != str(at.receipt):
        raise at.incomplete(f"The snapshot {at.kept_by} was dropped and made again since")
    return plan


def check_uuid_of_cut(contract: Contract, at: AtCut, place: str) -> None:
    """Raise ``CutMissing`` if the table that was opened at ``place`` is not the one of the cut."""
    if contract.table_uuid != at.table_uuid:
        raise at.incomplete(
            f"At {place} there is now the table with uuid {contract.table_uuid}. The cut has the table with uuid "
            f"{at.table_uuid}"
        )


def order_not_told(asked: Receipt, plan: ReadPlan) -> VersionGone:
    """Return the error for a receipt whose version is gone and whose read left out keys in conflict.  Another version
    may hold a later decision about these keys, so it cannot replace the missing version.
    """
    return VersionGone(
        f"table version {asked.version} of the receipt is gone: a clean-up removed it. The version that would replace "
        f"it, {plan.version}, does not tell in which order rows of a key came through two partitions. Read without this "
        "receipt",
        version=asked.version,
    )


def _plan_at_snapshot(context: PlanContext, name: str) -> ReadPlan:
    """Return the plan.  Raises ``SnapshotMissing`` if there is no snapshot of this name.  Raises ``InvalidInput`` if
    the snapshot is of another table.
    """
    branch = context.table.find_branch(name)
    found = None if branch is None else snapshot_of(branch)
    if found is None:
        raise SnapshotMissing(
            f"the table of topic {context.contract.topic} has no snapshot {name!r}{_why(context, branch is not None)}",
            snapshot=name,
        )
    receipt = Receipt.parse(found.receipt)
    if receipt.table_uuid != context.contract.uuid:
        raise InvalidInput(
            f"snapshot {name} is of the table with uuid {receipt.table_uuid}, this one has {context.contract.uuid}"
        )
    marks = {region: Watermark(Generation(0), position) for region, position in receipt.positions.items()}
    on = OnBranch(name, found.branch_version, found.receipt, found.waiting, found.unmerged, found.partitions)
    return ReadPlan(receipt.version, InForce(TableVersion(receipt.version), None, marks), (), on)


def _why(context: PlanContext, branch: bool) -> str:
    if branch:
        return ": the branch of that name is a user's, or its snapshot is being made"
    return f": {snapshots_there(context.table)}"
