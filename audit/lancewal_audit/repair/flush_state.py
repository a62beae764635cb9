"""Check whether a flush holds the rows that its generation's records give.

All of the flush is read, and the generation's entries in the log if they exist.  Lance's data files have no checksum,
except for their keys: a file with a changed byte may read as other values.  Only the log can show that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lancewal_audit.repair.context import RepairContext
from lancewal_core.errors import Corrupt, LancewalError, ObjectCorrupt, PlanStale
from lancewal_core.names.ids import Region
from lancewal_core.process.library_errors import first_line
from lancewal_core.region.flush_files import read_folded
from lancewal_core.region.flushes.manifest import read_flushed_generation
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.state import GenerationRecord
from lancewal_core.rows.column_types import storage_rows
from lancewal_core.rows.equal_cells import row_texts
from lancewal_core.rows.fold import Folded, fold


@dataclass(frozen=True, slots=True)
class FlushState:
    """Result of checking a flush.  ``problem``: why the flush cannot be used, None if it can.  ``log_problem``: why the
    log cannot be used instead, None if it can.
    """

    record: GenerationRecord
    problem: str | None
    log_problem: str | None

    @property
    def lost(self) -> bool:
        """Whether neither the flush nor the log has the generation's rows."""
        return self.problem is not None and self.log_problem is not None


def flush_state(context: RepairContext, region: Region, record: GenerationRecord) -> FlushState:
    """Check the flush of a generation that is FLUSHED or MERGED.  Raises ``StoreUnavailable`` if the store does not
    answer.
    """
    stored, problem = _stored(context, region, record)
    expected, log_problem = _expected(context, region, record)
    if stored is not None and expected is not None and not same_rows(stored, expected, context.contract.primary_key):
        problem = f"{record.flush} reads as other rows than the generation's log"
    return FlushState(record, problem, log_problem)


def _stored(context: RepairContext, region: Region, record: GenerationRecord) -> tuple[Folded | None, str | None]:
    try:
        flushed = read_flushed_generation(context.store, record.flush or "", region, record.generation)
    except Corrupt as error:
        return None, str(error)
    if (flushed.first, flushed.next) != (record.first, record.next):
        return None, f"{record.flush} holds positions {flushed.first} to {flushed.next}"
    try:
        content = read_folded(context.store, context.table, flushed, context.columns_of(flushed))
    except (LancewalError, pa.ArrowException, ValueError, OSError, RuntimeError) as error:
        # The store has just answered, so the file is damaged, even if Lance calls the store unavailable.
        return None, first_line(error)
    return context.rows_of_flush(flushed, content), None


def _expected(context: RepairContext, region: Region, record: GenerationRecord) -> tuple[Folded | None, str | None]:
    try:
        entries = entries_of(context, region, record)
    except (PlanStale, ObjectCorrupt) as error:
        return None, str(error)
    return fold([context.rows_of(e) for e in entries], context.contract.rows), None


def same_rows(one: Folded, other: Folded, primary_key: Sequence[str]) -> bool:
    """Return whether two folds hold the same keys in the same states with the same values, in any order."""
    order = [(name, "ascending") for name in primary_key]
    for mine, theirs in zip((one.rows, one.gone, one.partials), (other.rows, other.gone, other.partials), strict=True):
        if mine.num_rows != theirs.num_rows:
            return False
        left, right = storage_rows(mine).sort_by(order), storage_rows(theirs).sort_by(order)
        # NaN is not equal to itself: as text it is.
        if not left.equals(right) and row_texts(left) != row_texts(right):
            return False
    return True
