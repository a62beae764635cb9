"""Plan a read at a point of any kind."""

from __future__ import annotations

from typing import assert_never

from lancewal_core.errors import InvalidInput, VersionGone
from lancewal_core.store.place import same_place
from lancewal_reader.plan.at_positions import plan_at_positions
from lancewal_reader.plan.at_receipt import plan_at
from lancewal_reader.plan.at_record_time import plan_at_record_time
from lancewal_reader.plan.at_snapshot import plan_at_snapshot
from lancewal_reader.plan.at_timestamp import plan_at_timestamp
from lancewal_reader.plan.at_version import plan_at_version
from lancewal_reader.plan.strong import PlanContext, ReadPlan
from lancewal_reader.point.at import AtPositions, AtRecordTime, AtSnapshot, AtTimestamp, AtVersion, Point
from lancewal_reader.point.receipt import Receipt


def plan_at_point(context: PlanContext, at: Point, place: str) -> ReadPlan:
    """Return the plan of a point.  Errors are those of the plan of its kind; ``InvalidInput`` for a receipt of another
    ``place``."""
    match at:
        case AtSnapshot():
            return plan_at_snapshot(context, at.name)
        case AtPositions():
            return plan_at_positions(context, place, dict(at.by_partition))
        case AtTimestamp():
            return plan_at_timestamp(context, place, at.ms)
        case AtRecordTime():
            return plan_at_record_time(context, place, at.ms)
        case Receipt():
            if not same_place(at.place, place):
                raise InvalidInput(
                    f"the receipt is of a read at {at.place}, but this table is at {place}. Read the table that gave it, by "
                    "the address that it names"
                )
            plan = plan_at(context, at)
            if at.left_out and plan.version != at.version:
                raise order_not_told(at, plan)
            return plan
        case AtVersion():
            return plan_at_version(context, at.number)
        case _:
            assert_never(at)


def order_not_told(asked: Receipt, plan: ReadPlan) -> VersionGone:
    """Return the error for a receipt whose version is gone and whose read left out keys in conflict.  A version that
    stands in shows what became of their records, not what the read saw."""
    return VersionGone(
        f"table version {asked.version} of the receipt is gone: a clean-up removed it. The version that would stand in "
        f"for it, {plan.version}, does not tell in which order rows of a key came through two partitions",
        version=asked.version,
    )
