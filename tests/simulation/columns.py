"""What a world knows of its columns where they change: which contract decides each record, and which columns a read has.

A field is known by the id that it had at first and the version of the contract that added it (``3@7``), whatever its names
and types.  A record has values by name, and its entry names the version of the contract that says which fields these are.
The bucket tells of entries and contracts at the moment that they are stored.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

import pyarrow as pa

from lancewal_core.names import paths
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.rows.carry import Tree, trees
from lancewal_core.rows.schema import Op
from lancewal_core.table.contract import Contract, columns_version, decode_contract
from lancewal_core.table.protocol import COLUMNS_MARK
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Segment, decode_segment
from tests.simulation import oracle
from tests.simulation.checker import require
from tests.simulation.memory_kafka import MemoryTopic
from tests.twins.memory_table import MemoryDataset

TYPES = {
    "b": "int64",
    "c": "string",
    "d": "int64",
    "e": "string",
    "f": "int64",
    "g": "int32",
    "s": "struct<p: int32, q: string>",
    "l": "list<struct<p: int32, q: string>>",
}
"""Names that columns may get, and the type of each when it is added.  ``k`` and ``a`` never change."""
MEMBERS = {"p": "int32", "q": "string", "r": "int64", "t": "string"}
"""Names that members of structs may get."""


class Bad(Exception):
    """The record is no row."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a contract, or of a result, and the fields within."""

    name: str
    key: str
    """The field."""
    id: int
    type: pa.DataType
    within: tuple[Part, ...]

    @staticmethod
    def of(tree: Tree, key_of: Callable[[int], str]) -> Part:
        within = tuple(Part.of(member, key_of) for member in tree.within)
        return Part(tree.name, key_of(tree.id), tree.id, tree.type, within)

    def by_field(self, value: object) -> object:
        """A value with fields in place of names."""
        if isinstance(value, dict):
            return {member.key: member.by_field(value[member.name]) for member in self.within}
        if isinstance(value, list):
            return [self.within[0].by_field(item) for item in value]
        return value

    def shown(self, value: object) -> object:
        """A value by field, with the fields of this one alone."""
        if isinstance(value, Mapping):
            return {member.key: member.shown(value.get(member.key)) for member in self.within}
        if isinstance(value, list):
            return [self.within[0].shown(item) for item in value]
        return value

    def names(self) -> object:
        """Its name, and those within."""
        return names_of(self.name, self.type)


def names_of(name: str, type_: pa.DataType) -> object:
    """The name of a field, and of members of structs within."""
    while pa.types.is_list(type_):
        type_ = type_.value_type
    return (name, *(names_of(f.name, f.type) for f in type_)) if pa.types.is_struct(type_) else name


@dataclass(frozen=True, slots=True)
class Shown:
    """Columns of a result, and which of them records set."""

    parts: tuple[Part, ...]
    ours: frozenset[str]


@dataclass(slots=True)
class Columns:
    """See the module docstring."""

    dataset: MemoryDataset
    topic: MemoryTopic
    contracts: dict[int, Contract]
    stored_ms: dict[int, int] = field(default_factory=lambda: {1: -1})
    """When versions of the contract were stored."""
    first: dict[int, dict[int, str]] = field(default_factory=dict)
    """By version of the contract its fields, by the ids that they had at first."""
    of: dict[int, dict[int, str]] = field(default_factory=dict)
    """The same by Lance's ids."""
    entries: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """By partition, entries that are stored: first and next position, and contract version."""

    @property
    def newest(self) -> Contract:
        return self.contracts[max(self.contracts)]

    def __post_init__(self) -> None:
        for contract in self.contracts.values():
            self._know(contract)

    def _know(self, contract: Contract) -> None:
        before, version = self.first.get(contract.version - 1, {}), contract.version
        self.contracts[version] = contract
        self.first[version] = {i: before.get(i, f"{i}@{version}") for c in contract.columns for i in c.ids}
        self.of[version] = {
            own: self.first[version][i] for c in contract.columns for own, i in zip(c.field_ids, c.ids, strict=True)
        }

    def parts(self, version: int) -> dict[str, Part]:
        """The fields of a contract by their names, without the key."""
        key_of = self.first[version].__getitem__
        found = [Part.of(tree, key_of) for tree in trees(self.contracts[version].rows)]
        return {part.name: part for part in found if part.name != "k"}

    # -- what is stored ------------------------------------------------------------------------------------------

    def stored(self, key: str, data: bytes, now_ms: int) -> Contract | None:
        """An object is stored; the contract that it is a new version of."""
        if paths.parse_contract_version(key) is not None:
            contract = decode_contract(data, key)
            self._know(contract)
            self.stored_ms[contract.version] = now_ms
            return contract
        if paths.parse_wal_segment(key) is not None:
            found = decode_segment(data, key)
            for entry in found.entries if isinstance(found, Segment) else ():
                known = self.entries.setdefault(entry.region.partition, [])
                known.append((int(entry.first), int(entry.next), entry.contract_version))
                known.sort()
                for record in self.topic.partitions[entry.region.partition].between(entry.first, entry.next):
                    self._check_looked(record, entry)
        return None

    def _check_looked(self, record: oracle.Record, entry: Entry) -> None:
        """A record is rejected for its columns, or taken by another name than a present one, only by a contract that was
        the newest when it was produced."""
        version = max(v for v, ms in self.stored_ms.items() if ms < record.timestamp)
        if version <= entry.contract_version or record.op not in (Op.UPSERT, Op.PATCH):
            return
        parts = self.parts(entry.contract_version)
        require(
            _is_plain(record.values, parts),
            f"offset {record.offset}: decided by an old contract:",
            record,
            version,
            entry,
        )

    def version_of(self, partition: int, offset: int) -> int:
        """The contract version that decided a record."""
        known = self.entries.get(partition, [])
        at = bisect_right(known, (offset, 1 << 60, 0)) - 1
        return known[at][2] if at >= 0 and known[at][0] <= offset < known[at][1] else self.newest.version

    def newest_within(self, partition: int, first: int, next_: int) -> int:
        """The newest version that an entry there names; 0 if there is none."""
        found = [v for begin, end, v in self.entries.get(partition, []) if begin < next_ and first < end]
        return max(found, default=0)

    def check_flush(self, flushed: FlushedGeneration) -> None:
        """A flush has the columns of the newest contract that its entries name: a read of either shows the same."""
        newest = self.newest_within(flushed.region.partition, int(flushed.first), int(flushed.next))
        if newest:
            told, own = self.contracts[newest], self.contracts[flushed.contract_version]
            require(told.columns_change == own.columns_change, "a flush has columns of", own.version, "entries", newest)

    def of_producers(self, rng: Random) -> dict[str, str]:
        """Columns of a record: mostly those of the newest contract, else what some producer still or already knows."""
        version = self.newest.version if rng.random() < 0.7 else rng.choice(sorted(self.contracts))
        return {c.name: c.type for c in self.contracts[version].columns}

    # -- what records mean ---------------------------------------------------------------------------------------

    def meant(self, partition: int, record: oracle.Record) -> oracle.Record:
        """The record with its values by field, as the contract of its entry decides."""
        if record.op is None or record.op is Op.DELETE:
            return record
        contract = self.contracts[self.version_of(partition, record.offset)]
        parts = self.parts(contract.version)
        try:
            values = _taken(contract, None, parts, record.values)
        except Bad:
            return replace(record, op=None, values={})
        if record.op is Op.UPSERT:
            defaults = {c.name: json.loads(c.default) for c in contract.columns if c.default is not None}
            values = {**{part.key: defaults.get(name) for name, part in parts.items()}, **values}
        return replace(record, values=values)

    # -- what is shown -------------------------------------------------------------------------------------------

    def shown(self, version: int, merged: Mapping[int, int], cut: Mapping[int, int]) -> Shown:
        """The columns of a read: of this table version, where ``merged`` is what it has, up to this cut."""
        found = next(v for v in (self.dataset.first, *self.dataset.landed) if v.number == version)
        mark = (found.columns.schema.metadata or {}).get(COLUMNS_MARK)
        at = columns_version(None if mark is None else mark.decode())
        # Rows of a newer contract may be merged before the table has the mark of its change.
        newest_merged = max([self.newest_within(p, 0, n) for p, n in merged.items()], default=0)
        own = {**self.of[newest_merged], **self.of[at]} if newest_merged > at else dict(self.of[at])
        there = {tree.id for column in found.columns.trees() for tree in column.all()}
        own |= self._widened(there)
        of_table = [tree for tree in found.columns.trees() if tree.name != "k"]
        newer = max([self.newest_within(p, merged.get(p, 0), n) for p, n in cut.items()], default=0)
        if newer and self.contracts[newer].columns_version > at:
            ours = tuple(self.parts(newer).values())
            known = {*own, *self.of[newer]}
            others = tuple(Part.of(tree, _of_others) for tree in of_table if tree.id not in known)
            return Shown((*ours, *others), frozenset(part.key for part in ours))

        def key_of(id_: int) -> str:
            return own.get(id_) or _of_others(id_)

        return Shown(tuple(Part.of(tree, key_of) for tree in of_table), frozenset(own.values()))

    def _widened(self, there: Collection[int]) -> dict[int, str]:
        """Fields by the ids that widenings were to give them, where the table has no longer those of before.

        Another program's column may have got such an id, and the field another one since."""
        found: dict[str, int] = {}
        for version, contract in sorted(self.contracts.items()):
            for column in contract.columns:
                for before, after, first in zip(column.field_ids, column.widened.field_ids, column.ids, strict=True):
                    if before != after and after in there and before not in there:
                        found[self.first[version][first]] = after
        return {after: key for key, after in found.items()}

    def rows(self, records: Iterable[oracle.Record], shown: Shown) -> dict[int, oracle.Values]:
        """Rows by field."""
        found: dict[int, oracle.Values] = {}
        for k, state in oracle.fold(records, {}).items():
            if state.kind != "gone":
                values = dict(state.values)
                found[k] = {
                    part.key: part.shown(values.get(part.key)) if part.key in shown.ours else None
                    for part in shown.parts
                }
        return found

    def by_field(self, rows: Mapping[int, oracle.Values], shown: Shown) -> dict[int, oracle.Values]:
        """The same rows, by field instead of name."""
        return {k: {part.key: part.by_field(row[part.name]) for part in shown.parts} for k, row in rows.items()}

    def without_dropped(self, rows: Mapping[int, oracle.Values]) -> dict[int, oracle.Values]:
        """The same rows without fields that were dropped since: a process may have merged without them."""
        gone = {f for fields in self.first.values() for f in fields.values()}
        gone -= {*self.first[self.newest.version].values()}
        return {k: _without(row, gone) for k, row in rows.items()}  # type: ignore[misc] # rows stay rows

    def states(self, found: Mapping[int, oracle.KeyState], version: int) -> dict[int, oracle.KeyState]:
        """States by field, of states that have the names of this version of the contract."""
        parts = self.parts(version)
        return {
            k: oracle.KeyState.of(s.kind, {parts[n].key: parts[n].by_field(v) for n, v in s.values})
            for k, s in found.items()
        }

    def seen_by(self, expected: Mapping[int, oracle.KeyState], version: int) -> dict[int, oracle.KeyState]:
        """What is left of states under a later version of the contract."""
        found, parts = {}, self.parts(version)
        for k, state in expected.items():
            values = dict(state.values)
            left = {
                part.key: part.shown(values.get(part.key))
                for part in parts.values()
                if state.kind == "row" or part.key in values
            }
            found[k] = oracle.KeyState.of(state.kind, {} if state.kind == "gone" else left)
        return found


def _of_others(id_: int) -> str:
    return f"{id_} of others"


def _without(value: object, gone: set[str]) -> object:
    if isinstance(value, Mapping):
        return {f: _without(v, gone) for f, v in value.items() if f not in gone}
    return [_without(item, gone) for item in value] if isinstance(value, list) else value


def _holds(type_: pa.DataType, value: object) -> bool:
    """Whether a plain type holds the value."""
    return not (pa.types.is_int32(type_) and isinstance(value, int)) or -(2**31) <= value < 2**31


def _is_plain(values: Mapping[str, object], parts: Mapping[str, Part]) -> bool:
    """Whether all names are present ones, and all values are of their types."""
    return all(name in parts and _value_is_plain(parts[name], value) for name, value in values.items())


def _value_is_plain(part: Part, value: object) -> bool:
    if isinstance(value, Mapping):
        return _is_plain(value, {member.name: member for member in part.within})
    if isinstance(value, list):
        return all(_value_is_plain(part.within[0], item) for item in value)
    return _holds(part.type, value)


def _taken(
    contract: Contract, within: int | None, parts: Mapping[str, Part], values: Mapping[str, object]
) -> dict[str, object]:
    """Values by field of one level, that of the columns or the members of a struct; ``Bad`` unless they are a row's."""
    by_id = {part.id: part for part in parts.values()}
    former = {f.name: by_id[f.id] for f in contract.former_names if f.id in by_id}
    passed = {d.name for d in contract.dropped if d.within == within and not d.forgotten}
    found: dict[str, object] = {}
    for name, value in values.items():
        part = parts.get(name, former.get(name))
        if part is None and name in passed:
            continue
        if part is None or part.key in found:
            raise Bad
        found[part.key] = _value(contract, part, value)
    return found


def _value(contract: Contract, part: Part, value: object) -> object:
    if isinstance(value, Mapping):
        return _taken(contract, part.id, {member.name: member for member in part.within}, value)
    if isinstance(value, list):
        return [_value(contract, part.within[0], item) for item in value]
    if not _holds(part.type, value):
        raise Bad
    return value
