"""How many of each partition's newest records became rows or were rejected, in the last two minutes that had records.

Rejected records that the contract ignores do not count: a person has decided that they are no problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from lancewal_core.names.ids import Region
from lancewal_core.process.status.facts import Rejections
from lancewal_core.wal.entry import Entry, RejectedOffset

BUCKET_S = 60.0


@dataclass(slots=True)
class _Bucket:
    """Rows and rejections of one partition in one bucket of time."""

    began: float
    rows: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    examples: dict[str, int] = field(default_factory=dict)


class RecentRecords:
    """Counter of each partition's recent rows and rejections, in two buckets of ``BUCKET_S`` seconds."""

    def __init__(self) -> None:
        self._buckets: dict[Region, tuple[_Bucket | None, _Bucket]] = {}

    def add(self, entry: Entry, ignored: Collection[RejectedOffset], now: float) -> None:
        rejections = [rejected for rejected in entry.rejected if rejected not in ignored]
        if not entry.row_count and not rejections:
            return
        before, bucket = self._buckets.get(entry.region, (None, _Bucket(now)))
        if now - bucket.began >= BUCKET_S:
            before, bucket = bucket if now - bucket.began < 2 * BUCKET_S else None, _Bucket(now)
        self._buckets[entry.region] = (before, bucket)
        bucket.rows += entry.row_count
        for rejected in rejections:
            bucket.kinds[rejected.kind] += 1
            bucket.examples[rejected.kind] = rejected.offset

    def keep(self, regions: Collection[Region]) -> None:
        """Forget all partitions except ``regions``."""
        self._buckets = {region: found for region, found in self._buckets.items() if region in regions}

    def of(self, region: Region) -> Rejections:
        before, bucket = self._buckets.get(region, (None, _Bucket(0.0)))
        both = [bucket] if before is None else [before, bucket]
        rows = sum(one.rows for one in both)
        kinds = sum((one.kinds for one in both), Counter[str]())
        if not kinds:
            return Rejections(rows=rows)
        kind, _ = kinds.most_common(1)[0]
        offset = next(one.examples[kind] for one in reversed(both) if kind in one.examples)
        return Rejections(kinds.total(), rows, kind, offset)
