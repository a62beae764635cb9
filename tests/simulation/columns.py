"""What a world knows of its columns where they change: which contract decides each record, and which columns a read has.

A field is known by its id and the version of the contract that added it (``3@7``), whatever its names.  A record has values
by name, and its entry names the version of the contract that says which fields these are.  The bucket tells of entries and
contracts at the moment that they are stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from lancewal_core.names import paths
from lancewal_core.region.flushes.manifest import FlushedGeneration
from lancewal_core.rows.schema import Op
from lancewal_core.table.contract import Contract, columns_version, decode_contract
from lancewal_core.table.protocol import COLUMNS_MARK
from lancewal_core.wal.entry import Entry
from lancewal_core.wal.segment import Segment, decode_segment
from tests.simulation import oracle
from tests.simulation.checker import require
from tests.simulation.memory_kafka import MemoryTopic
from tests.twins.memory_table import MemoryDataset

TYPES = {"b": "int64", "c": "string", "d": "int64", "e": "string", "f": "int64"}
"""Names that columns may get, and the type of each.  ``k`` and ``a`` never change."""
Fields = Mapping[str, object]
"""Values by field."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Columns of a result: the field of each name, and which of them records set."""

    fields: Mapping[str, str]
    ours: frozenset[str]


@dataclass(slots=True)
class Columns:
    """See the module docstring."""

    dataset: MemoryDataset
    topic: MemoryTopic
    contracts: dict[int, Contract]
    stored_ms: dict[int, int] = field(default_factory=lambda: {1: -1})
    """When versions of the contract were stored."""
    of: dict[int, dict[int, str]] = field(default_factory=dict)
    """By version of the contract its fields, by their ids."""
    entries: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """By partition, entries that are stored: first and next position, and contract version."""

    @property
    def newest(self) -> Contract:
        return self.contracts[max(self.contracts)]

    def __post_init__(self) -> None:
        for contract in self.contracts.values():
            self._know(contract)

    def _know(self, contract: Contract) -> None:
        before = self.of.get(contract.version - 1, {})
        self.contracts[contract.version] = contract
        self.of[contract.version] = {i: before.get(i, f"{i}@{contract.version}") for i in contract.field_ids}

    def names(self, version: int) -> dict[str, str]:
        """The fields of a contract by their names, without the key."""
        fields = self.of[version]
        return {c.name: fields[c.ids[0]] for c in self.contracts[version].columns if c.name != "k"}

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
        """A value is passed over, or a record rejected, only by a contract that was the newest when it was produced."""
        version = max(v for v, ms in self.stored_ms.items() if ms < record.timestamp)
        if version <= entry.contract_version or record.op not in (Op.UPSERT, Op.PATCH):
            return
        known = self.names(entry.contract_version)
        known |= {f.name: "" for f in self.contracts[entry.contract_version].former_names}
        missed = [n for n in record.values if n not in known and n in self.names(version)]
        require(not missed, f"offset {record.offset}: not taken by an old contract:", missed, version, entry)

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
        version = self.version_of(partition, record.offset)
        contract, now = self.contracts[version], self.names(version)
        former = {f.name: self.of[version][f.id] for f in contract.former_names}
        passed = {d.name for d in contract.dropped if d.within is None and not d.forgotten}
        values: dict[str, object] = {}
        for name, value in record.values.items():
            found = now.get(name, former.get(name))
            if found in values or (found is None and name not in passed):
                return replace(record, op=None, values={})
            if found is not None:
                values[found] = value
        if record.op is Op.UPSERT:
            values = {**dict.fromkeys(now.values()), **values}
        return replace(record, values=values)

    # -- what is shown -------------------------------------------------------------------------------------------

    def shown(self, version: int, merged: Mapping[int, int], cut: Mapping[int, int]) -> Shown:
        """The columns of a read: of this table version, where ``merged`` is what it has, up to this cut."""
        found = next(v for v in (self.dataset.first, *self.dataset.landed) if v.number == version)
        mark = (found.columns.schema.metadata or {}).get(COLUMNS_MARK)
        at = columns_version(None if mark is None else mark.decode())
        # Rows of a newer contract may be merged before the table has the mark of its change.
        newest_merged = max([self.newest_within(p, 0, n) for p, n in merged.items()], default=0)
        own = {**self.of.get(newest_merged, {}), **self.of[at]} if newest_merged > at else self.of[at]
        of_table = {n: own.get(ids[0], f"{n} of others") for n, ids in found.columns.ids.items() if n != "k"}
        newer = max([self.newest_within(p, merged.get(p, 0), n) for p, n in cut.items()], default=0)
        if newer and self.contracts[newer].columns_version > at:
            ours = self.names(newer)
            known = {*own, *self.of[newer]}
            others = {n: f for n, f in of_table.items() if found.columns.ids[n][0] not in known}
            return Shown({**ours, **others}, frozenset(ours.values()))
        return Shown(of_table, frozenset(own.values()))

    def rows(self, records: Iterable[oracle.Record], shown: Shown) -> dict[int, oracle.Values]:
        """Rows by field."""
        found: dict[int, oracle.Values] = {}
        for k, state in oracle.fold(records, {}).items():
            if state.kind != "gone":
                values = dict(state.values)
                found[k] = {f: values.get(f) if f in shown.ours else None for f in shown.fields.values()}
        return found

    def by_field(self, rows: Mapping[int, oracle.Values], shown: Shown) -> dict[int, oracle.Values]:
        """The same rows, by field instead of name."""
        return {k: {shown.fields[name]: value for name, value in row.items()} for k, row in rows.items()}

    def without_dropped(self, rows: Mapping[int, oracle.Values]) -> dict[int, oracle.Values]:
        """The same rows without fields that were dropped since: a process may have merged without them."""
        gone = {f for fields in self.of.values() for f in fields.values()} - {*self.of[self.newest.version].values()}
        return {k: {f: v for f, v in row.items() if f not in gone} for k, row in rows.items()}

    def states(self, found: Mapping[int, oracle.KeyState], version: int) -> dict[int, oracle.KeyState]:
        """States by field, of states that have the names of this version of the contract."""
        fields = self.names(version)
        return {k: oracle.KeyState.of(s.kind, {fields[n]: v for n, v in s.values}) for k, s in found.items()}

    def seen_by(self, expected: Mapping[int, oracle.KeyState], version: int) -> dict[int, oracle.KeyState]:
        """What is left of states under a later version of the contract."""
        found = {}
        for k, state in expected.items():
            values = dict(state.values)
            left = {f: values.get(f) for f in self.names(version).values() if state.kind == "row" or f in values}
            found[k] = oracle.KeyState.of(state.kind, {} if state.kind == "gone" else left)
        return found
