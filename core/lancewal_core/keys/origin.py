"""The region through which a key came, for tables whose rows do not tell it (``Contract.rows_tell_partition``).

If a row tells its partition, each key has one region by construction.  Otherwise (``partitioner: none``, or
``format.key: bytes``, ``json`` or a format with schemas) producers may put a record anywhere.  If the partition does
not follow from the primary key, records of one primary key come through two partitions, and Kafka does not order
these.  So the region of a row is remembered, and compared where another row of the key comes.  Different regions are
a ``RegionConflict``.

Guarantees
 1. A remembered region *counts* if it is compared.  It stops counting when the topic's partitions change (``alter
    --partitions``), if the row was merged by then, or when another topic takes the place (``alter --topic-id``).
    After such a change a key may come through another region.
 2. Only remembered regions conflict.  A row whose region is lost, or that never came through Kafka, conflicts with
    no other.

Each remembered region has a *position*: the one up to which the region was merged when the row came into the table.
This position is above the row's own offset.  It is at or below the positions that an ``alter`` recorded exactly if
the row was merged by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import RegionConflict
from lancewal_core.keys.run import NO_REGION
from lancewal_core.names.ids import Position, Region
from lancewal_core.rows.fold import key_codes
from lancewal_core.table.contract import Contract

NOT_KNOWN = -1
"""Value for a row whose region is not known, or no longer counts."""

Partitions = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class MergedFrom:
    """A region, and the position up to which it was merged when a row came into the table."""

    region: Region
    position: Position


Counts = Callable[[MergedFrom], int]
"""Function that returns a region's partition if the region still counts (guarantee 1), else ``NOT_KNOWN``."""


def counting(contract: Contract) -> Counts:
    """Return the function that tells which remembered regions count under the contract (guarantee 1)."""

    def partition(source: MergedFrom) -> int:
        region, ended = source.region, contract.altered_at
        if (region.topic, region.topic_id) != (contract.topic, contract.topic_id):
            return NOT_KNOWN
        if region.partition < len(ended) and source.position <= ended[region.partition]:
            return NOT_KNOWN
        return region.partition

    return partition


class RegionList:
    """Regions of a key run, in the order of the run's list.  Entries of the run refer to a region by its index.

    The list stays short.  A region is in it at most twice: with the highest position that counts under the contract,
    and with the highest one that does not.
    """

    def __init__(self, counts: Counts) -> None:
        self.counts = counts
        self._places: dict[tuple[Region, bool], int] = {}
        self._found: list[MergedFrom] = []

    def place(self, source: MergedFrom) -> int:
        """Return the index of a region.  If the list does not have the region, append it."""
        known = (source.region, self.counts(source) != NOT_KNOWN)
        place = self._places.setdefault(known, len(self._found))
        if place == len(self._found):
            self._found.append(source)
        elif source.position > self._found[place].position:
            self._found[place] = source
        return place

    def places(self, sources: Sequence[MergedFrom]) -> npt.NDArray[np.int32]:
        """Return for each region of another list its index in this list, and ``NO_REGION`` as the last element."""
        return np.array([*(self.place(source) for source in sources), NO_REGION], np.int32)

    @property
    def regions(self) -> tuple[MergedFrom, ...]:
        return tuple(self._found)


@dataclass(frozen=True, slots=True)
class Meeting:
    """Keys that came through two partitions: their number, and the two partitions of the first such key."""

    keys: int
    partitions: tuple[int, int]


def meeting(keys: pa.Table, partitions: Partitions) -> Meeting | None:
    """Return the keys that came through two partitions; None if there are none.

    ``partitions`` has the partition of each row of ``keys``.  No two rows of one partition may have the same key.
    """
    codes = key_codes(keys)
    if int(codes.max(initial=-1)) + 1 == len(codes):
        return None
    order = np.argsort(codes, kind="stable")
    again = np.flatnonzero(np.diff(codes[order]) == 0)
    first, second = order[again[0]], order[again[0] + 1]
    return Meeting(len(np.unique(codes[order[again]])), (int(partitions[first]), int(partitions[second])))


def conflict(topic: str, met: Meeting, what: str, way_on: str, **where: object) -> RegionConflict:
    """Return the error for keys that came through two partitions.

    ``what`` follows the word "it" in a sentence about the key.  ``way_on`` is advice for a person.  ``where`` has
    further fields of the error.  The key itself is never named, because it is user data.
    """
    first, second = met.partitions
    return RegionConflict(
        f"topic {topic}: a primary key ({met.keys} in all) came through partitions {first} and {second}: it {what}. Kafka "
        "does not order partitions, so nothing says which row is newer. Producers must key by something that the primary key "
        f"determines. {way_on}",
        topic=topic,
        partitions=[first, second],
        keys=met.keys,
        **where,
    )
