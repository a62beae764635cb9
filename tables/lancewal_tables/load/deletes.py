"""Keys that merged records of Kafka have deleted since a load began.  The load must not bring their rows back.

Guarantee: the keys include all deletes of every generation that was merged after the load began, up to the watermarks
W.  If such a generation is trimmed, its deletes cannot be read, and the error is ``OutsideHistoryWindow``.  Deletes
that wait for a person's decision are not among the keys.

A key that was deleted and then got a row again is among the keys too.  That makes no difference, since a load leaves
out every key that has a row.  A flush is kept as long as its generation.  If a flush is missing, the generation's WAL
entries are folded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lancewal_core.errors import ObjectMissing, OutsideHistoryWindow, or_raised
from lancewal_core.keys.conflicts import Conflicts
from lancewal_core.names.ids import Generation, Region
from lancewal_core.region.flush_files import read_each, read_gone_of
from lancewal_core.region.generation_entries import entries_of
from lancewal_core.region.history import read_histories
from lancewal_core.region.state import GenerationRecord
from lancewal_core.rows.fold import fold
from lancewal_core.table.load_record import LoadRecord
from lancewal_core.table.watermarks import InForce
from lancewal_flusher.context import FlusherContext


@dataclass(slots=True)
class DeletesSince:
    """Reader of the keys that were deleted since a load began.  ``name`` and ``began``: the load's name and its stored
    record."""

    context: FlusherContext
    name: str
    began: LoadRecord
    _without: set[tuple[Region, Generation]] = field(default_factory=set)
    """Generations that were read and delete no key, so that they need not be read again."""

    def keys(self, in_force: InForce, conflicts: Conflicts) -> list[pa.Table]:
        """Return the keys that were deleted, up to the watermarks ``in_force``: one table for each generation that
        deletes.

        ``conflicts``: the keys in conflict at ``in_force``.  Raises ``OutsideHistoryWindow`` if a generation is
        trimmed.
        """
        generations = self._merged_since(in_force)
        found = []
        for (region, record), gone in zip(generations, self._gone(generations), strict=True):
            if gone.num_rows:
                assert record.next is not None, "it is merged"
                waits = conflicts.wait_below(region, gone, record.next)
                found.append(gone.filter(pa.array(~waits)))
            else:
                self._without.add((region, record.generation))
        return found

    def _merged_since(self, in_force: InForce) -> list[tuple[Region, GenerationRecord]]:
        """Return the generations that were merged since the load began, without those that are known to delete nothing."""
        unseen = [region for region in self.context.contract.regions if not self._seen(region, in_force)]
        histories = read_histories(self.context, unseen, in_force)
        found = []
        for region in unseen:
            first, last = self.began.generation(region), in_force.generation(region)
            history = histories.get(region)
            if history is None or history.state.trimmed_generation > first:
                raise OutsideHistoryWindow(
                    f"the load {self.name} began before generation {first + 1} of partition {region.name} was merged, "
                    "and the deletes of that generation were trimmed after the history window. Give the load another "
                    "name to begin again; rows that Kafka has deleted until then come back",
                    load=self.name,
                    region=region.name,
                )
            found += [
                (region, record)
                for record in history.generations
                if first < record.generation <= last and (region, record.generation) not in self._without
            ]
        return found

    def _seen(self, region: Region, in_force: InForce) -> bool:
        """Return whether each generation of the region that was merged since the load began is known to delete nothing."""
        merged = range(self.began.generation(region) + 1, in_force.generation(region) + 1)
        return all((region, Generation(g)) in self._without for g in merged)

    def _gone(self, generations: Sequence[tuple[Region, GenerationRecord]]) -> list[pa.Table]:
        """Return the keys that each generation deletes, in the order of ``generations``."""
        context, rows = self.context, self.context.contract.rows
        read = read_each(context, generations, lambda parts: read_gone_of(context.store, parts, rows))
        found = []
        for (region, record), gone in zip(generations, read, strict=True):
            if gone is None or isinstance(gone, ObjectMissing):
                gone = fold([context.rows_of(e) for e in entries_of(context, region, record)], rows).gone
            found.append(or_raised(gone))
        return found
