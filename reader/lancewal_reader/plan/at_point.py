"""The plan of a point: of a receipt, or of a version alone."""

from __future__ import annotations

from typing import assert_never

from lancewal_core.errors import InvalidInput, VersionGone
from lancewal_core.store.place import same_place
from lancewal_reader.plan.at_receipt import plan_at
from lancewal_reader.plan.at_version import plan_at_version
from lancewal_reader.plan.strong import PlanContext, ReadPlan
from lancewal_reader.point.at import At, Point
from lancewal_reader.point.receipt import Receipt


def plan_at_point(context: PlanContext, at: Point, place: str) -> ReadPlan:
    """Errors are those of ``plan_at`` and ``plan_at_version``; ``InvalidInput`` for a receipt of another ``place``."""
    match at:
        case Receipt():
            if not same_place(at.place, place):
                raise InvalidInput(
                    f"the receipt is of a read at {at.place}, this table lies at {place}: read the table that gave it, by "
                    "the address that it names"
                )
            plan = plan_at(context, at)
            if at.left_out and plan.version != at.version:
                raise order_not_told(at, plan)
            return plan
        case At():
            return plan_at_version(context, at.table_version)
        case _:
            assert_never(at)


def order_not_told(asked: Receipt, plan: ReadPlan) -> VersionGone:
    """Of rows that came through two partitions a version that stands in says what became of them, not what was before."""
    return VersionGone(
        f"table version {asked.version} of the receipt is gone: a clean-up removed it, and the version that would stand in "
        f"for it, {plan.version}, does not tell in which order rows of a key came through two partitions",
        version=asked.version,
    )
