"""``lancewal repair index``: rebuild a secondary index that finds rows by old values, twice or not at all.

Guarantees
 1. No row changes: the commit replaces one index by another.  Until it lands, queries use the old index; at no moment is
    there none.
 2. The new index has the name, the kind and the parameters of the old one.  If Lance does not report all parameters
    that matter, nothing is changed and ``RepairRefused`` says what to run.
 3. All services may run meanwhile.  The new index covers the rows of the version that it read.  Queries scan later rows, as
    after each merge, until the flusher extends the index.  Lance refuses the commit if a compaction or another build of
    the index came first.  Then nothing was changed, and the command may be run again.
 4. Running the command again builds the index once more.

Steps
 1. Find kind and parameters of the index in the newest version's description and statistics.
 2. Look whether the table is still at its place, build and commit.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.told import Told, told
from lancewal_core.errors import InvalidInput, RepairRefused, counted
from lancewal_core.keys.far_rows import far_text, row_keys
from lancewal_core.process.library_errors import first_line
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.lance.errors import read_error
from lancewal_core.table.lance.index_build import IndexBuild, index_build
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.presence import check_present

_CONFLICT = "commit conflict"


@dataclass(frozen=True, slots=True)
class LanceIndexPlan:
    """Plan of the repair: how the index is to be built, and from which version."""

    context: RepairContext
    table: LanceTable
    pinned: LancePinnedTable
    build: IndexBuild
    rows: int

    def lines(self) -> list[Told]:
        """Return sentences about the present index and the one that is to be built."""
        build, column, version = self.build, ".".join(self.build.path), self.pinned.version
        not_reported = [told(f"Lance does not report {build.not_reported}")] if build.not_reported else []
        return [
            told(
                f"index {build.name}: {build.kind} over {column}, {counted(build.segments, 'segment')}",
                index=build.name,
                kind=build.kind,
                column=column,
                segments=build.segments,
            ),
            told(
                f"rebuild it from {counted(self.rows, 'row')} of version {version}: {build.call}",
                rows=self.rows,
                version=version,
                call=build.call,
            ),
            *not_reported,
        ]


def plan_lance_index(context: RepairContext, name: str) -> LanceIndexPlan:
    """Return the plan to rebuild the index ``name`` (step 1).

    Raises ``InvalidInput`` if there is no such index.  ``RepairRefused``: Lance does not report its parameters.
    """
    assert isinstance(context.table, LanceTable)
    pinned = context.table.newest()
    check_fit(context.store, pinned, context.contract)
    build = index_build(pinned.dataset, name)
    if build is None:
        known = sorted(index.name for index in pinned.indexes())
        raise InvalidInput(f"the table has no index {name!r}; it has {known or 'none'}")
    if build.unknown:
        raise RepairRefused(
            f"index {name} of kind {build.kind} cannot be rebuilt by this command: {build.unknown}. Rebuild it with "
            f"pylance and its own parameters, as you first did, with name={name!r} and replace=True. Nothing was changed"
        )
    rows = sum(f.live_rows for f in pinned.fragments())
    return LanceIndexPlan(context, context.table, pinned, build, rows)


def repair_lance_index(plan: LanceIndexPlan) -> list[Told]:
    """Build and commit the index (step 2); return what was done.

    Raises ``RepairRefused`` if another commit came first.  Raises ``TableMissing``, ``TableReplaced`` if the table was
    deleted.
    """
    name, contract = plan.build.name, plan.context.contract
    check_present(plan.context.store, contract)
    try:
        done = plan.table.build_index_again(plan.pinned.dataset, plan.build)
    except (OSError, RuntimeError, ValueError) as error:
        if _CONFLICT in str(error).lower():
            raise RepairRefused(
                f"index {name}: a compaction or another build of it came first: {first_line(error)}. Nothing was changed; "
                "run the command again"
            ) from error
        raise read_error(error, f"building index {name} of version {plan.pinned.version}") from error
    version, rows = done.version, plan.rows - len(done.far_rows)
    message = f"version {version}: index {name} is rebuilt over {counted(rows, 'row')}"
    found = [told(message, index=name, version=version, rows=rows)]
    if done.far_rows:
        keys = row_keys(plan.pinned, done.far_rows, contract.primary_key)
        found.append(told(far_text(len(done.far_rows), keys), index=name, rows=len(done.far_rows), keys=list(keys)))
    return found
