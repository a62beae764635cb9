"""Consumed records of a region that are in no segment yet, and what they weigh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from lancewal_core.names.ids import Position, Region
from lancewal_ingest.decode.weight import RecordWeights, pieces
from lancewal_kafka.records import Records

_LARGE_RECORD = 16 << 10
"""Bytes that one takes in memory from which on it may leave a hole there (``glibc_heap``)."""


@dataclass(slots=True)
class Pending:
    """All that was consumed of a region from its durable position up to ``next``, perhaps without a record."""

    records: Records
    next: Position
    nbytes: int = 0
    """Their weight."""
    rows: int = field(init=False)
    """How many records: asked for in each turn of the loop, of every region."""

    def __post_init__(self) -> None:
        self.rows = len(self.records.offsets)


def weighed(polled: Mapping[Region, Records], weights: RecordWeights) -> tuple[dict[Region, int], bool]:
    """Return the weight of the records of each partition, in one computation for all.  No partition may be without
    records.

    Also return whether large records make up most of the weight, however few they are."""
    if not polled:
        return {}, False
    each = weights.each(Records.joined(list(polled.values())))
    starts = [0, *accumulate(map(len, polled.values()))][:-1]
    large = bool(2 * each[each >= _LARGE_RECORD].sum() > each.sum())
    return dict(zip(polled, np.add.reduceat(each, starts).tolist(), strict=True)), large


def joined(pending: Pending | None, more: Records, next_: Position, weight: int) -> Pending:
    """Return ``pending`` and the records after it, which weigh this much."""
    if pending is None or not pending.rows:
        return Pending(more, next_, weight)
    pending.records.extend(more)
    return Pending(pending.records, next_, pending.nbytes + weight)


def divided(
    pending: Pending, nbytes: int, weights: RecordWeights, *, least: int
) -> tuple[Pending | None, Pending | None]:
    """Return the first records, and the rest.  The first ones weigh at most ``nbytes``, but are at least ``least`` (1 or
    0)."""
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
