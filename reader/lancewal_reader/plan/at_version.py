"""Plan a read of one version of the merged table, whatever the version holds of each region.

The plan is that of an eventual read.  It has no positions in two cases.  In the first, a user had restored the table,
and nobody had decided what becomes of the rows merged since the restored version.  In the second, a person had
accepted a lower bound of the merged positions.
"""

from __future__ import annotations

from lancewal_core.errors import InvalidInput, TableRestored, VersionGone
from lancewal_core.names.ids import TableVersion
from lancewal_core.process.clock import utc_text
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.watermarks import NOTHING_MERGED, TABLE_UUID
from lancewal_reader.plan.strong import PlanContext, ReadPlan


def plan_at_version(context: PlanContext, version: TableVersion) -> ReadPlan:
    """Return the plan of a table version.  Raises ``VersionGone`` if a clean-up removed it.  Raises ``InvalidInput`` if
    it does not exist yet, or is older than the lancewal table.
    """
    try:
        pinned = context.table.at(version)
    except VersionGone as error:
        newest = context.table.newest().version
        if version > newest:
            raise InvalidInput(f"there is no table version {version} yet, the newest is {newest}") from error
        raise versions_left(context, f"table version {version} is gone: a clean-up removed it", version) from error
    check_of_table(pinned, version)
    try:
        in_force = context.watermarks.at(version)
    except TableRestored:
        in_force = NOTHING_MERGED
    return ReadPlan(version, in_force if in_force.exact else NOTHING_MERGED, ())


def check_of_table(pinned: PinnedTable, version: TableVersion) -> None:
    """Raise ``InvalidInput`` if this version is older than the lancewal table."""
    if TABLE_UUID not in pinned.config:
        raise InvalidInput(
            f"table version {version} is from before the table was lancewal's: read it with Lance, or ask for a later one"
        )


def versions_left(context: PlanContext, why: str, version: int | None = None) -> VersionGone:
    """Return a ``VersionGone`` whose message begins with ``why`` and lists the versions that still exist."""
    left = sorted(context.table.versions())
    oldest, newest = (f"{found}{_of_when(context, found)}" for found in (left[0], left[-1]))
    return VersionGone(
        f"{why}. The oldest version left is {oldest}, the newest is {newest}. Let clean-ups keep versions for as long as "
        "they are read",
        version=left[0] if version is None else version,
    )


def _of_when(context: PlanContext, version: TableVersion) -> str:
    try:
        return f" of {utc_text(context.table.commit_time(version))}"
    except VersionGone:
        return ""
