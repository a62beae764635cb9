"""Eras of a topic: the contracts under which its records were decoded, and the offsets that belong to each contract.

After a change of the number of partitions, a key may come through another region.  All its records of the earlier era
then come before those of the later era, whatever their offsets.  ``define.alter`` ensures this: the old contract ends
only when everything is merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lancewal_core.names.ids import Position
from lancewal_core.table.contract import Contract


class Eras:
    """Eras of a topic's records.  ``contracts``: every version, oldest first.

    Only contracts of the newest topic count: offsets of another topic mean nothing."""

    def __init__(self, contracts: Sequence[Contract]) -> None:
        self.newest = contracts[-1]
        self._contracts = [c for c in contracts if c.topic_id == self.newest.topic_id]
        self.rebound = len(self._contracts) < len(contracts)
        """Whether rows of an earlier topic may be in the table."""

    @property
    def altered(self) -> bool:
        """Whether a key may have records in more than one region."""
        return any(contract.altered_at for contract in self._contracts)

    def parts(
        self, partition: int, first: Position, end: Position
    ) -> Iterator[tuple[int, Contract, Position, Position]]:
        """Divide the offsets [``first``, ``end``) of a partition by era.  Yield each era's number, contract, and offsets."""
        begins = [self._begin(era, partition) for era in range(len(self._contracts))]
        for era, contract in enumerate(self._contracts):
            low = max(first, begins[era])
            high = min([end, *begins[era + 1 :]])
            if low < high:
                yield era, contract, Position(low), Position(high)

    def era_of(self, partition: int, offset: int) -> int:
        """Return the number of the era in which an offset lies."""
        return max(era for era in range(len(self._contracts)) if era == 0 or self._begin(era, partition) <= offset)

    def _begin(self, era: int, partition: int) -> int:
        altered_at = self._contracts[era].altered_at
        return max(altered_at[partition], 0) if era and partition < len(altered_at) else 0
