"""Choose what a merge does to each fragment, by the cost: a pure decision.

Three strategies

* *hide*: a deletion vector hides the rows that the merge replaces; the new rows are in new files.  This is cheapest
  now, but each hidden row brings the fragment's next compaction nearer.
* *rewrite*: hide, and let compaction rewrite the fragment's live rows right after the merge.  The rewrite is not part
  of the merge's commit.  If it were, it would save the deletion vector, about a thousandth of the bytes, but delay
  the merge for as long as the copying takes.
* *columns*: rewrite the columns that patches set for the whole fragment, in place.  Patched rows are neither hidden
  nor written as new rows.  This suits patches of few columns in many rows.

``is_worn`` decides between *hide* and *rewrite*: a fragment is rewritten if compaction would choose it anyway.
*Columns* are written if the sum of *bytes written now* and *bytes owed* is less than with the other strategy.  Bytes
owed are later costs:

 1. reading: a byte read costs ``READ_WEIGHT`` of a byte written;
 2. a share of the compaction to come.  It rewrites a fragment when a share ``s`` of its rows is hidden
    (``flusher.compaction_deleted_ratio``).  Each hidden row therefore owes one part in ``s * rows`` of that: of
    reading the whole fragment, and of writing the rest of it with its key index.  If a share ``s`` of the rows is
    hidden, *hide* and *rewrite* cost the same.
 3. secondary indexes: new rows, and rows of a rewritten fragment, must be indexed.

*columns* cannot be chosen if an index, of whatever kind, is over one of the columns, whether it covers the fragment
or not.  Its segments would keep the old values, and any extension of the index, ours or a user's, could bring them
back (``index_doubt``).

The comparison leaves out what all strategies share: the new rows of upserts, which ingest has written, the lookup of
the keys, and the commit.

Seconds are predicted for people and for the benchmark (``merge-strategies``).  They decide nothing: constants
measured on one machine would choose otherwise on the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

READ_WEIGHT = 0.4
"""Weight of a byte read, if a byte written weighs 1.  It is the CPU time of a scan of all columns over that of writing
the same rows (``benchmarks.calibrate``)."""
KEY_ENTRY_BYTES = 16
"""Bytes that one row takes in the key index.  A key that is not one integer takes its own bytes in addition, which
are ignored here."""
_VECTOR_BYTES = 1_000
"""Bytes of an almost empty deletion vector."""
_CONTAINER_ROWS = 65_536
_CONTAINER_BYTES = 8_192

# Seconds of work on one core (2 cores, x86-64, local folder): single steps as ``python -m benchmarks.calibrate``
# measures them, the others so that whole merges of the benchmark ``merge-strategies`` come out. The same virtual
# machine is twice as fast on one day as on another; these lie in between.
_VECTOR_S = 0.0003
"""Seconds to write one deletion vector."""
_HIDDEN_ROW_S = 2.0e-8
"""Seconds for each row in a deletion vector."""
_COMPLETED_ROW_S = 2.5e-6
"""Seconds for a patched row that becomes a new row: its base row is read, completed, written again."""
_COLUMN_ROW_S = 5.0e-8
"""Seconds for a row of a fragment whose columns are rewritten in place: read, overlaid, written."""
_COLUMN_BYTE_S = 1.0e-8
"""Seconds for a byte of the columns that are rewritten in place."""
_PATCHED_ROW_S = 3.5e-7
"""Seconds for a row that is patched in place."""
_REWRITTEN_BYTE_S = 6.0e-9
"""Seconds for a byte that compaction writes."""
_READ_BYTE_S = 2.2e-9
"""Seconds for a byte that compaction reads."""
_INDEXED_ROW_S = 2.5e-7
"""Seconds for a row that the key index takes in after compaction."""
COMMIT_S = 0.02
"""Seconds for a commit, with the work around it."""
KEY_S = 1.6e-7
"""Seconds for a key of the merge: read from its flush, looked up in the key index."""
SCANNED_ROW_S = 5.0e-8
"""Seconds for a row of a fragment that the key index does not cover."""
NEW_ROW_S = 1.0e-6
"""Seconds for a row that the merge writes as a new one."""


class Strategy(StrEnum):
    """Ways to apply a merge to a fragment: hide rows, rewrite the fragment, or write columns in place."""

    HIDE = "hide"
    REWRITE = "rewrite"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class FragmentChange:
    """A fragment, and what a merge does to it."""

    fragment_id: int
    rows: int
    """Physical rows."""
    deleted_rows: int
    """Physical rows that were hidden before the merge."""
    nbytes: int
    """Bytes of the fragment's data files."""
    replaced: int
    """Number of live rows with a key of the merge."""
    patched: int = 0
    """Number of the ``replaced`` rows that patches change: they set some columns of a row, and its other columns
    stay."""
    patched_bytes: int | None = None
    """Bytes of the patched columns in the whole fragment; None: these columns cannot be rewritten alone."""
    rewritable: bool = True
    """Whether compaction may rewrite the fragment."""
    index_row_bytes: float = 0.0
    """Bytes that a new row takes in all secondary indexes together."""
    indexed_by: tuple[str, ...] = ()
    """Names of indexes over columns that the patches set.  If there are any, the fragment is not patched in place."""

    @property
    def row_bytes(self) -> float:
        return self.nbytes / max(self.rows, 1)

    def hidden_after(self, strategy: Strategy) -> int:
        """Return the number of hidden rows after a merge with this strategy."""
        return self.deleted_rows + self.replaced - (self.patched if strategy is Strategy.COLUMNS else 0)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one strategy for one fragment.  ``bytes_owed``: bytes of later work that the strategy causes (module
    docstring).
    """

    strategy: Strategy
    bytes_written: int
    """Bytes written by the merge, and by the compaction after it if that is part of the strategy."""
    bytes_owed: int
    seconds: float
    """Predicted seconds that the merge spends on this fragment, in one task.  Tasks run at the same time."""
    seconds_behind: float = 0.0
    """Predicted seconds of the compaction right after the merge."""

    @property
    def weight(self) -> int:
        """Bytes written now plus bytes owed.  Strategies are compared by this sum."""
        return self.bytes_written + self.bytes_owed


def vector_bytes(rows: int, hidden: int) -> int:
    """Return the bytes of a deletion vector that hides ``hidden`` of ``rows`` rows, including rows hidden before.

    The size is that of a roaring bitmap: two bytes a row, up to 8 KiB for each 65,536 rows of the fragment.
    """
    return _VECTOR_BYTES + min(2 * hidden, _CONTAINER_BYTES * (1 + rows // _CONTAINER_ROWS))


def is_worn(rows: int, hidden: int, deleted_share: float) -> bool:
    """Whether a fragment hides so many rows that compaction rewrites it.  False if no row is left, because the merge
    removes such a fragment.
    """
    return hidden < rows and hidden / rows >= deleted_share


def costs(change: FragmentChange, deleted_share: float) -> tuple[Cost, ...]:
    """Return the cost of *hide* or of *rewrite*, and that of *columns* if columns can be written in place."""
    worn = change.rewritable and is_worn(change.rows, change.hidden_after(Strategy.HIDE), deleted_share)
    possible = [Strategy.REWRITE if worn else Strategy.HIDE]
    if change.patched and change.patched_bytes is not None and not change.indexed_by:
        possible.append(Strategy.COLUMNS)
    return tuple(_cost(change, strategy, deleted_share) for strategy in possible)


def least(found: Sequence[Cost]) -> Cost:
    """Return the cost with the least weight; the first of several equal ones."""
    return min(found, key=lambda cost: cost.weight)


def _cost(change: FragmentChange, strategy: Strategy, deleted_share: float) -> Cost:
    hidden = change.hidden_after(strategy)
    newly = hidden - change.deleted_rows
    gone = hidden >= change.rows
    written = float(vector_bytes(change.rows, hidden) if newly and not gone else 0)
    owed = 0.0 if gone else _debt(change, hidden, deleted_share)
    seconds = _VECTOR_S * bool(newly and not gone) + _HIDDEN_ROW_S * newly
    match strategy:
        case Strategy.HIDE:
            return _with_patches(change, Cost(strategy, int(written), int(owed), seconds))
        case Strategy.REWRITE:
            live = change.rows - hidden
            copied = live * change.row_bytes
            written += copied + live * KEY_ENTRY_BYTES
            owed = READ_WEIGHT * change.nbytes + live * change.index_row_bytes
            behind = COMMIT_S + _READ_BYTE_S * change.nbytes
            behind += _REWRITTEN_BYTE_S * copied + _INDEXED_ROW_S * live
            return _with_patches(change, Cost(strategy, int(written), int(owed), seconds, behind))
        case Strategy.COLUMNS:
            column_bytes = change.patched_bytes or 0
            written += column_bytes
            owed += READ_WEIGHT * column_bytes
            seconds += _COLUMN_ROW_S * change.rows + _COLUMN_BYTE_S * column_bytes
            seconds += _PATCHED_ROW_S * change.patched
            return Cost(strategy, int(written), int(owed), seconds)
        case _:
            assert_never(strategy)


def _with_patches(change: FragmentChange, cost: Cost) -> Cost:
    """Return this cost plus the cost of reading patched rows and writing them as new rows."""
    return Cost(
        cost.strategy,
        cost.bytes_written + int(change.patched * (change.row_bytes + KEY_ENTRY_BYTES)),
        cost.bytes_owed + int(change.patched * (READ_WEIGHT * change.row_bytes + change.index_row_bytes)),
        cost.seconds + _COMPLETED_ROW_S * change.patched,
        cost.seconds_behind,
    )


def _debt(change: FragmentChange, hidden: int, deleted_share: float) -> float:
    """Return the bytes owed for hidden rows: their share of a later compaction.  If compaction may not rewrite the
    fragment, these are the bytes that reads read in vain.
    """
    if not change.rewritable:
        return READ_WEIGHT * hidden * change.row_bytes
    left = (1 - deleted_share) * change.rows
    rewriting = READ_WEIGHT * change.nbytes + left * (change.row_bytes + KEY_ENTRY_BYTES + change.index_row_bytes)
    return rewriting * hidden / max(deleted_share * change.rows, 1)
