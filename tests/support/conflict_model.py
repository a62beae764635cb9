"""What a table keyed by bytes must hold when keys come through several partitions: dicts, and one rule for each act.

Of a key the model knows the row, who brought it, whose records count while it is in conflict, and the records of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lancewal_core.rows.schema import Op
from tests.support.flusher_tables import Operation, Row

BLANK: Row = {"a": None, "s": None, "tags": None}


@dataclass(slots=True)
class KeyModel:
    """One key.  ``owner``: of a key in force; ``brought``: the partition of the live row."""

    row: Row | None = None
    brought: int | None = None
    owner: int | None = None
    waiting: dict[int, list[Operation]] = field(default_factory=dict)

    @property
    def in_force(self) -> bool:
        return self.owner is not None or bool(self.waiting)

    def apply(self, partition: int, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self.row = applied(self.row, operation)
        self.brought = None if self.row is None else partition


@dataclass(slots=True)
class ConflictModel:
    """All keys, by their id."""

    keys: dict[int, KeyModel] = field(default_factory=dict)

    def merge(self, taken: Mapping[int, Sequence[Operation]]) -> None:
        """One merge; ``taken``: by partition its records, in order."""
        ids = {operation.id for operations in taken.values() for operation in operations}
        for id in sorted(ids):
            by = {p: [o for o in operations if o.id == id] for p, operations in taken.items()}
            self._merge_key(self.keys.setdefault(id, KeyModel()), {p: found for p, found in by.items() if found})

    def _merge_key(self, key: KeyModel, by: Mapping[int, list[Operation]]) -> None:
        owner = key.owner if key.in_force else key.brought
        if not key.in_force and owner is None and len(by) == 1:
            (owner,) = by
        for partition, operations in by.items():
            if partition == owner:
                key.apply(partition, operations)
            else:
                key.waiting.setdefault(partition, []).extend(operations)
        if key.waiting:
            key.owner = owner

    def settle(self, partition: int, ids: Iterable[int]) -> None:
        for id in ids:
            key = self.keys[id]
            operations = key.waiting.get(partition, [])
            if operations:
                key.apply(partition, operations)
            key.waiting, key.owner = {}, partition

    def rows(self) -> dict[int, Row]:
        return {id: key.row for id, key in self.keys.items() if key.row is not None}

    def strong(self, unmerged: Mapping[int, Sequence[Operation]]) -> tuple[dict[int, Row], int]:
        """The rows of a strong read with these records, by partition, behind the table; of how many keys some are left out."""
        found, left_out = self.rows(), 0
        ids = {operation.id for operations in unmerged.values() for operation in operations}
        for id in ids:
            key = self.keys.get(id, KeyModel())
            by = {p: [o for o in operations if o.id == id] for p, operations in unmerged.items()}
            by = {p: operations for p, operations in by.items() if operations}
            counted = {p for p in by if p == key.owner} if key.in_force else set(by)
            if len(counted) > 1:
                counted = set()
            left_out += counted != set(by)
            row = key.row
            for partition in counted:
                for operation in by[partition]:
                    row = applied(row, operation)
            found.pop(id, None)
            if row is not None:
                found[id] = row
        return found, left_out

    def waits(self) -> dict[tuple[int, int], tuple[str, Row | None]]:
        """By key and partition what the records that wait come to."""
        return {
            (id, partition): folded(operations)
            for id, key in self.keys.items()
            for partition, operations in key.waiting.items()
        }

    def owners(self) -> dict[int, int]:
        return {id: key.owner for id, key in self.keys.items() if key.owner is not None}


def applied(row: Row | None, operation: Operation) -> Row | None:
    """A row behind one record."""
    match operation.op:
        case Op.UPSERT:
            return {**BLANK, **operation.values}
        case Op.PATCH:
            return {**(row or BLANK), **operation.values}
        case Op.DELETE:
            return None


def folded(operations: Sequence[Operation]) -> tuple[str, Row | None]:
    """What records make of a key of which no row is known."""
    row: Any = {}
    state = "patch"
    for operation in operations:
        if operation.op is Op.PATCH and state == "patch":
            row = {**row, **operation.values}
        else:
            row = applied(row, operation)
            state = "gone" if row is None else "row"
    return state, row
