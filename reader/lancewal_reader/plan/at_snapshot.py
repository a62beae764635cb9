"""Plan a read of a named snapshot: its branch alone, whatever has become of the versions and log entries that it was made
from.

Guarantees
 1. The rows are those of the read at the snapshot's receipt, which is that of this read, too; or a named error.
 2. The plan asks for the branch's name and nothing else: nothing of the WAL or of the state of regions.

A snapshot that is being made does not count yet.  Changes of a user to the branch since do not count: the version is
pinned.
"""

from __future__ import annotations

from lancewal_core.errors import InvalidInput, SnapshotMissing
from lancewal_core.names.ids import Generation, TableVersion
from lancewal_core.table.snapshots import find_branch, snapshot_of, snapshots_there
from lancewal_core.table.watermarks import InForce, Watermark
from lancewal_reader.plan.strong import OnBranch, PlanContext, ReadPlan
from lancewal_reader.point.receipt import Receipt


def plan_at_snapshot(context: PlanContext, name: str) -> ReadPlan:
    """Return the plan.  ``SnapshotMissing``: there is no snapshot of this name.  ``InvalidInput``: the snapshot is of
    another table."""
    branch = find_branch(context.table, name)
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
