"""Consumed records of a region that are in no segment yet, and their weight in memory (``decode.weight``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from lancewal_core.names.ids import Position, Region
from lancewal_ingest.decode.weight import RecordWeights, pieces
from lancewal_kafka.records import Records

_LARGE_RECORD = 16 << 10
"""Weight in bytes from which on a record may leave a hole in the heap when it is freed (``glibc_heap``)."""


@dataclass(slots=True)
class Pending:
    """Records of a region consumed from its durable position up to ``next``; there may be none in that range."""

    records: Records
    next: Position
    nbytes: int = 0
    """Weight of the records."""
    rows: int = field(init=False)
    """Number of records.  Stored, because each turn of the loop asks every region for it."""

    def __post_init__(self) -> None:
        self.rows = len(self.records.offsets)


def weighed(
    polled: Mapping[Region, Records], together: Records, weights: RecordWeights
) -> tuple[dict[Region, int], bool]:
    """Return the weight of each partition's records, and whether large records make up most of the total weight.

    Each partition must have records, and there must be at least one partition.  ``together``: the records of all
    partitions, in the same order.
    """
    each = weights.each(together)
    starts = [0, *accumulate(map(len, polled.values()))][:-1]
    large = bool(2 * each[each >= _LARGE_RECORD].sum() > each.sum())
    return dict(zip(polled, np.add.reduceat(each, starts).tolist(), strict=True)), large


def joined(pending: Pending | None, more: Records, next_: Position, weight: int) -> Pending:
    """Return ``pending`` extended by the records ``more``, which follow it and weigh ``weight``; it ends at ``next_``."""
    if pending is None or not pending.rows:
        return Pending(more, next_, weight)
    pending.records.extend(more)
    return Pending(pending.records, next_, pending.nbytes + weight)


def parted(pending: Pending, at: Position, weights: RecordWeights) -> tuple[Pending, Pending | None]:
    """Divide ``pending`` into the records before the position ``at`` and the others.  An empty part is None.

    The first part is weighed again, because a newer contract may have made its rows larger.
    """
    begin = bisect_left(pending.records.offsets, at)
    if begin == pending.rows:
        return pending, None
    first, rest = pending.records.part(0, begin), pending.records.part(begin, None)
    weight = int(weights.each(first).sum()) if begin else 0
    left = max(0, pending.nbytes - weight)
    return Pending(first, Position(rest.offsets[0]), weight), Pending(rest, pending.next, left)


def divided(
    pending: Pending, nbytes: int, weights: RecordWeights, *, least: int
) -> tuple[Pending | None, Pending | None]:
    """Divide ``pending`` into the first records, which weigh at most ``nbytes``, and the rest.

    With ``least`` = 1 the first part has at least one record, of any weight.  A part without records is None, unless
    ``pending`` itself has no records.
    """
    if pending.nbytes <= nbytes:
        return pending, None
    if not len(pending.records):  # a position alone weighs nothing, but there is less room than that
        return (pending, None) if least else (None, pending)
    each = weights.each(pending.records)
    at = pieces(each, nbytes)[0]
    if int(each[:at].sum()) > nbytes and not least:
        return None, pending
    if at == len(pending.records):
        return pending, None
    first, rest = pending.records.part(0, at), pending.records.part(at, None)
    weight = int(each[:at].sum())
    # Between the last of the first and the first of the rest no record lies that anybody reads.
    return Pending(first, Position(rest.offsets[0]), weight), Pending(rest, pending.next, pending.nbytes - weight)
