"""Divide a delta into portions.  Folding it needs the memory of its keys and of one portion, however many records it
has.

Guarantees
 1. Each source is in exactly one portion, and none comes before an earlier source of its region.  Folded one after
    the other, the portions give the fold of the whole (guarantee 1 of ``rows.fold``).
 2. A segment is in one portion, so it is read once.  Generations of one flush may be in several portions, each of
    which reads the flush's manifest.
 3. ``check_keys`` refuses a delta with more keys than are allowed.  Folding never removes a key.  If one portion has
    too many keys, the whole delta has too many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

from lancewal_core.errors import InvalidInput, TooManyUnmerged
from lancewal_core.names.ids import Generation, Region
from lancewal_core.store.json_object import is_whole
from lancewal_reader.plan.log_entries import EntryRef, SegmentPlace
from lancewal_reader.plan.strong import RegionDelta, Source
from lancewal_reader.unmerged.one_order import one_order

UNMERGED_KEYS_MAX = 10_000_000
"""Default of ``unmerged_keys_max``: the most keys whose unmerged rows one read holds in memory.  A read with more
raises ``TooManyUnmerged``.
"""
PORTION_RECORDS = 1_000_000
"""Largest number of records in one portion, or the number of keys folded so far if that is larger.  Folding a portion
visits all of these keys.
"""

Groups: TypeAlias = Sequence[Sequence[RegionDelta]]
_Object: TypeAlias = SegmentPlace | tuple[Region, Generation]


def records_of(source: Source) -> int:
    """Return the number of records of a source.

    For a flush it is the number of offsets that the flush covers, an upper bound of its keys.
    """
    return source.rows if isinstance(source, EntryRef) else source.next - source.first


def _of_each(deltas: Iterable[RegionDelta]) -> Iterator[int]:
    return (records_of(source) for delta in deltas for source in delta.sources)


def records_in(deltas: Iterable[RegionDelta]) -> int:
    return sum(_of_each(deltas))


def has_more_than(records: int, deltas: Iterable[RegionDelta]) -> bool:
    """Whether the deltas have more than ``records`` records.  Sources are counted until the sum exceeds ``records``."""
    return any(count > records for count in accumulate(_of_each(deltas)))


class Portions:
    """The portions in which groups of deltas are read.  Each portion has all groups, some of which may be empty."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._held = 0

    def hold(self, keys: int) -> None:
        """Record the number of keys in the portions that were folded so far."""
        self._held = keys

    def __iter__(self) -> Iterator[Groups]:
        deltas = [delta for group in self._groups for delta in group]
        if not has_more_than(PORTION_RECORDS, deltas):
            yield self._groups
            return
        records: dict[_Object, int] = {}
        for delta in deltas:
            for source in delta.sources:
                found = _object(delta.region, source)
                records[found] = records.get(found, 0) + records_of(source)
        chosen: set[_Object] = set()
        count = 0
        for found in _in_order(deltas):
            if chosen and count + records[found] > max(PORTION_RECORDS, self._held):
                yield self._of(chosen)
                chosen, count = set(), 0
            chosen.add(found)
            count += records[found]
        yield self._of(chosen)

    def _of(self, objects: set[_Object]) -> Groups:
        return [
            [
                RegionDelta(d.region, tuple(s for s in d.sources if _object(d.region, s) in objects), d.cut)
                for d in group
            ]
            for group in self._groups
        ]


def check_keys_max(keys_max: object) -> None:
    if not is_whole(keys_max):
        raise InvalidInput(f"unmerged_keys_max {keys_max!r}: expected a number of keys from 0 on")


def check_keys(count: int, keys_max: int) -> None:
    """Raise ``TooManyUnmerged`` if there are more than ``keys_max`` keys."""
    if count > keys_max:
        raise TooManyUnmerged(
            f"at least {count:,} keys have unmerged rows, and a read holds those of at most {keys_max:,} keys in memory "
            "(unmerged_keys_max). `lancewal status` shows why the flusher lags. Raise unmerged_keys_max, or read the "
            "merged table alone (consistency 'eventual')",
            keys_max=keys_max,
        )


def _object(region: Region, source: Source) -> _Object:
    """Return the object that is read at once: a segment, which may serve several regions, or one region's generation
    of a flush."""
    return source.segment if isinstance(source, EntryRef) else (region, source.generation)


def _in_order(deltas: Sequence[RegionDelta]) -> list[_Object]:
    """Return the objects so that each comes after those with earlier records of one of its regions.

    The order in which they were written is one: a region's next record is written only when all earlier ones are
    durable.
    """
    return one_order((_object(delta.region, source) for source in delta.sources) for delta in deltas)
