"""``lancewal compact``: rounds of compaction until nothing is left, beside a running flusher or without one.

Steps
 1. A round (``compaction``).  A refused round is planned again, with half the bytes and groups, because a shorter
    round is more likely to land between two merges.  A round that lands restores the size.  After ``REFUSALS_MAX``
    refusals in a row, an error says how to keep merges away.
 2. When nothing is left to compact: extend all indexes that lack a row, and correct those that may hold old values,
    round by round.

The sentinel is left alone, because merges of other processes would be refused.  With ``with_sentinel`` it is
rewritten like other fragments, if it is no larger than ``round_bytes``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lancewal_core.errors import PlanRetriesExhausted, VersionGone
from lancewal_core.process.progress import step
from lancewal_flusher.commit.send import Refused, Why, newest_finished
from lancewal_flusher.context import FlusherContext, by_newest_contract
from lancewal_flusher.upkeep.compaction import Compacted, FileSizes, choice_of, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits, Round, live_bytes
from lancewal_flusher.upkeep.index_plan import IndexLimits
from lancewal_flusher.upkeep.indexes import IndexExtended, IndexRefused, extend_indexes

REFUSALS_MAX = 20
PAUSE_S = 1.0
_ROUND_BYTES_MIN = 16 << 20


@dataclass(frozen=True, slots=True)
class CompactionSummary:
    """Result of ``lancewal compact``: what a run did.  With ``--dry-run``: what it would do."""

    rounds: int
    fragments_before: int
    fragments_after: int
    """Number of fragments of the whole table after the run."""
    rows_dropped: int
    bytes_read: int
    bytes_written: int
    """Bytes that the run wrote; with ``--dry-run`` an estimate."""
    indexes_extended: tuple[str, ...] = ()
    indexes_refused: tuple[str, ...] = ()
    """A text for each index that was not extended: its name and the reason."""


def compact_to_the_end(
    context: FlusherContext,
    limits: CompactionLimits,
    *,
    with_sentinel: bool,
    stopping: Callable[[], bool] = lambda: False,
) -> CompactionSummary:
    """Compact until nothing is left to do, then extend all indexes (steps 1 and 2).

    Raises ``PlanRetriesExhausted`` if merges keep changing the fragments that are being rewritten.
    """
    before = len(context.table.newest().fragments())
    done: list[Compacted] = []
    sizes, refusals, halved = FileSizes(), 0, 0
    while not stopping():
        # Step 1
        bounded = limits.to_the_end().halved(halved, _ROUND_BYTES_MIN)
        with step(f"compacting, round {len(done) + 1}"):
            result = by_newest_contract(
                context, partial(compact_next, limits=bounded, sizes=sizes, with_sentinel=with_sentinel)
            )
        if isinstance(result, Compacted):
            done.append(result)
            result.log(context.events)
            refusals = halved = 0
        elif isinstance(result, Refused):
            context.events.compaction_refused(reason=result.reason)
            refusals += 1
            halved += 1
            if refusals == REFUSALS_MAX:
                raise PlanRetriesExhausted(
                    f"{refusals} rounds in a row were refused, because others changed the same fragments; the last time: "
                    f"{result.reason}. Keep merges away meanwhile, with `lancewal pause flusher --for 10m`, and start "
                    "again: what has landed stays"
                )
            with step("waiting for merges to land"):
                context.clock.sleep(PAUSE_S)
        elif halved:
            halved = 0  # nothing fits into so small a round
        else:
            break
    # Step 2
    extended: dict[str, IndexExtended | IndexRefused] = {}
    more = True
    while more and not stopping():
        with step("extending indexes"):
            results = by_newest_contract(context, partial(extend_indexes, limits=IndexLimits(), at_once=True))
        extended |= {result.name: result for result in results}
        more = any(isinstance(result, IndexExtended) or result.more for result in results)
    return CompactionSummary(
        len(done),
        before,
        len(context.table.newest().fragments()),
        sum(c.rows_dropped for c in done),
        sum(c.bytes_read for c in done),
        sum(c.bytes_written for c in done),
        tuple(r.name for r in extended.values() if isinstance(r, IndexExtended)),
        tuple(f"{r.name}: {r.reason}" for r in extended.values() if isinstance(r, IndexRefused)),
    )


def look(context: FlusherContext, limits: CompactionLimits, *, with_sentinel: bool) -> CompactionSummary | Refused:
    """Return what ``compact_to_the_end`` would do if no other process wrote.  Changes nothing.  ``Refused`` means that
    nothing can be compacted now.
    """
    pinned = newest_finished(context)
    if isinstance(pinned, Refused):
        return pinned
    try:
        choice = choice_of(context, pinned, FileSizes(), with_sentinel=with_sentinel)
    except VersionGone as error:
        return Refused(f"files of table version {pinned.version} are gone: {error}", Why.CLEANED_UP)
    before = len(choice.fragments)
    bounded, rounds = limits.to_the_end(), list[Round]()
    while chosen := choice.next_round(bounded):
        rounds.append(chosen)
        choice = choice.after(chosen, bounded)
    return CompactionSummary(
        len(rounds),
        before,
        len(choice.fragments),
        sum(r.deleted_rows for r in rounds),
        sum(r.nbytes for r in rounds),
        sum(live_bytes(f) for r in rounds for f in r.fragments),
    )
