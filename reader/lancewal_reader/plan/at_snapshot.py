"""The receipt of a snapshot: a read at a snapshot is a read at its receipt."""

from __future__ import annotations

from lancewal_core.errors import SnapshotMissing
from lancewal_reader.plan.strong import PlanContext
from lancewal_reader.point.receipt import Receipt


def receipt_of_snapshot(context: PlanContext, name: str) -> Receipt:
    """``SnapshotMissing`` where there is no snapshot of this name."""
    raise SnapshotMissing(
        f"the table of topic {context.contract.topic} has no snapshot {name!r}",
        snapshot=name,
    )
