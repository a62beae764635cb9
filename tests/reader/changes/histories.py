"""Random histories of a table, on Lance and on the twin, and an oracle for the rows that two versions share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import lance
import numpy as np
import pyarrow as pa

from lancewal_core.names import paths
from lancewal_core.process.clock import SystemClock
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.column_types import format_type
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.object_store import put_once
from lancewal_core.table.contract import Column, Contract, encode_contract
from lancewal_core.table.protocol import (
    ROW_ADDRESS,
    ColumnsCommit,
    CommitOutcome,
    Committed,
    Fragment,
    PinnedTable,
    RewriteBounds,
    StoredTable,
    TableCommit,
    columns_mark,
    rows_by_fragment,
)
from lancewal_reader.changes.between import Between, between
from lancewal_reader.plan.strong import ReadPlan
from lancewal_reader.reading.result_columns import columns_of_plan
from tests.conformance.test_table import LanceUser, TwinUser, User
from tests.support.columns_by_hand import change_table, next_columns
from tests.support.scripted import InlineTasks
from tests.twins.memory_store import MemoryStore

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("n", pa.int32()),
        pa.field("t", pa.string()),
        pa.field("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
BOUNDS = RewriteBounds(batch_bytes=1 << 20, buffer_bytes=1 << 20, file_rows=1_000, file_bytes=1 << 20, copy=False)
Live = dict[int, tuple[Any, ...]]
"""Cells of live rows by their addresses."""


class History:
    """A table of keys ``k``, each in one row, and steps that change it.

    A column has a name of its own here (``n``, ``t``, ``s``, ``c1``), whatever the table calls it; ``names`` has what
    each version calls it."""

    def __init__(self, folder: Path | None, seed: int = 0, *, stable_row_ids: bool = False) -> None:
        """``folder``: of a Lance table; None: the twin."""
        self.random = random.Random(seed)
        self.folder = folder
        self.user: User = (
            TwinUser(SCHEMA) if folder is None else LanceUser(folder, SCHEMA, stable_row_ids=stable_row_ids)
        )
        self.table: StoredTable = self.user.table
        self.store = MemoryStore(SystemClock())
        ids = self.table.newest().field_ids
        self.contract = Contract(
            table_uuid="uuid-1",
            topic="orders",
            topic_id="topic-id-1",
            partitions=1,
            primary_key=("k",),
            region_key=("k",),
            start=(0,),
            columns=tuple(Column(name=f.name, type=format_type(f.type), field_ids=ids[f.name]) for f in SCHEMA),
        )
        put_once(self.store, paths.contract_version(1, None), encode_contract(self.contract))
        self.names: dict[int, dict[str, str]] = {1: {name: name for name in SCHEMA.names}}
        self.wide: set[str] = set()
        """Columns that may have got another type."""
        self._by_id = {own[0]: name for name, own in ids.items()}
        self._ever = 0
        self._keys = 0
        self.done: list[str] = []

    # -- steps ---------------------------------------------------------------------------------------------------

    def step(self, act: Callable[[], object], **names: str | None) -> None:
        """Do it, and note what columns are called since; ``names`` has those that change, None if one is dropped."""
        before = self.names_of(self.newest.version)
        act()
        pinned = self.newest
        after = {}
        for name in {**before, **names}:
            if (own := names.get(name, before.get(name))) is not None:
                # Another program's column may have the id of one that is gone: by the id it is that column again.
                known = self._by_id.setdefault(pinned.field_ids[own][0], name)
                self.wide |= {known} - {name}
                after[known] = own
        self.names[pinned.version] = after

    @property
    def newest(self) -> PinnedTable:
        return self.table.newest()

    def names_of(self, version: int) -> dict[str, str]:
        return self.names[max(v for v in self.names if v <= version)]

    def rows(self, keys: Sequence[int]) -> pa.Table:
        schema = self.newest.schema
        rows = [{field.name: self._value(field, key) for field in schema} for key in keys]
        return pa.Table.from_pylist(rows, pa.schema(list(schema)))

    def _value(self, field: pa.Field, key: int) -> Any:
        if field.name == "k":
            return key
        return _any(field.type, self.random)

    def new_rows(self, count: int) -> pa.Table:
        self._keys += count
        return self.rows(range(self._keys - count, self._keys))

    def append(self, count: int | None = None) -> None:
        self.step(lambda: self.user.append(self.new_rows(count or self.random.randint(1, 12))))

    def delete(self, keys: Iterable[int] | None = None) -> None:
        for key in self.some_keys(3) if keys is None else keys:
            self.step(lambda key=key: self.user.delete(key))  # type: ignore[misc]

    def live(self) -> dict[int, int]:
        """Addresses of the newest version's rows by key."""
        return {cells[0]: address for address, cells in self.rows_of(self.newest, ["k"]).items()}

    def some_keys(self, count: int) -> list[int]:
        live = sorted(self.live())
        return self.random.sample(live, min(len(live), self.random.randint(1, count)))

    def update(self, keys: Sequence[int] | None = None, *, same: bool = False) -> None:
        """Rows of these keys as new rows, and the old ones deleted; ``same``: the new ones are equal."""
        pinned, live = self.newest, self.live()
        keys = self.some_keys(6) if keys is None else keys
        if not keys:
            return
        rows = self.rows(keys)
        if same:
            rows = pinned.take(pa.array([live[key] for key in keys], pa.uint64()), rows.column_names).cast(rows.schema)
        self._commit(pinned, self.table.write_rows(rows, pinned.field_ids), [live[key] for key in keys])

    def _commit(self, pinned: PinnedTable, new: Sequence[str], hidden: Sequence[int]) -> None:
        updated, removed = [], []
        for fragment, places in rows_by_fragment(hidden).items():
            changed = pinned.hide_rows(fragment, places)
            updated += [] if changed is None else [changed]
            removed += [fragment] if changed is None else []
        commit = TableCommit(pinned.version, tuple(new), tuple(updated), tuple(removed), {}, strict=False)
        self.step(lambda: landed(self.table.commit(commit)))

    def in_place(
        self, column: str | None = None, values: Mapping[int, Any] | None = None, at: int | None = None
    ) -> None:
        """Another value in some rows of a fragment, by their places; by default some of them are equal to the old one."""
        pinned = self.newest
        names = self.names_of(pinned.version)
        column = column or self.random.choice(sorted(names.keys() - {"k"}))
        fragments = [f for f in pinned.fragments() if any(names[column] in _stored(pinned, f) for _ in [0])]
        if not fragments:
            return
        fragment = self.random.choice(fragments) if at is None else pinned.fragments()[at]
        field = pinned.schema.field(names[column])
        new_values = self._new_values(pinned, fragment, field) if values is None else values
        rows = np.array(sorted(new_values), np.int64)
        column_of = [new_values[place] for place in rows.tolist()]
        new = pa.table({field.name: pa.array(column_of, field.type)})
        text = pinned.fragment_json(fragment.fragment_id)
        written = pinned.write_columns(fragment.fragment_id, rows, new, text)
        commit = TableCommit(pinned.version, (), (written,), (), {}, strict=False, columns_written=(field.name,))
        self.step(lambda: landed(self.table.commit(commit)))

    def _new_values(self, pinned: PinnedTable, fragment: Fragment, field: pa.Field) -> dict[int, Any]:
        live = np.setdiff1d(np.arange(fragment.physical_rows), pinned.hidden_rows(fragment.fragment_id)).tolist()
        places = sorted(self.random.sample(live, self.random.randint(1, len(live))))
        old = pinned.take(pa.array([fragment.fragment_id << 32 | p for p in places], pa.uint64()), [field.name])
        values = [
            v if self.random.random() < 0.5 else _any(field.type, self.random) for v in old[field.name].to_pylist()
        ]
        return dict(zip(places, values, strict=True))

    def rewrite(self, ids: Sequence[int] | None = None, file_rows: int = 1_000, *, copy: bool = False) -> None:
        """A compaction of ours."""
        pinned = self.newest
        there = [f.fragment_id for f in pinned.fragments()]
        chosen = self.random.sample(there, self.random.randint(1, len(there))) if there and ids is None else ids or ()
        if not set(chosen) <= set(there) or not chosen:
            return
        bounds = replace(BOUNDS, copy=copy, file_rows=file_rows)
        new = self.table.rewrite(pinned.version, sorted(chosen), bounds)
        old = tuple(pinned.fragment_json(i) for i in sorted(chosen))
        self.step(
            lambda: landed(self.table.commit(TableCommit(pinned.version, new, (), (), {}, strict=False, rewritten=old)))
        )

    def compact(self, rows: int | None = None) -> None:
        """A compaction by others."""
        if self.folder is None:
            self.step(self.user.compact)
            return
        size = rows or self.random.choice([8, 20, 1_000])
        dataset: Any = lance.dataset(str(self.folder))
        self.step(
            lambda: dataset.optimize.compact_files(target_rows_per_fragment=size, materialize_deletions_threshold=0.0)
        )

    # -- columns -------------------------------------------------------------------------------------------------

    def _new_name(self) -> str:
        self._ever += 1
        return f"c{self._ever}"

    @property
    def is_ours(self) -> bool:
        """Whether the newest version has the contract's columns, so that the contract can change them."""
        pinned = self.newest
        return (
            columns_mark(pinned) == self.contract.columns_change and dict(pinned.field_ids) == self.contract.fields_of
        )

    def change(self, changes: Mapping[str, str | None], added: Mapping[str, str] | None = None) -> None:
        """A change of columns by the contract: new names by names here."""
        if not self.is_ours:
            return
        names = self.names_of(self.newest.version)
        by_name = {names[name]: new for name, new in changes.items()}
        contract = next_columns(self.contract, by_name, added or {})

        def act() -> None:
            change_table(self.store, self.table, contract)
            self.contract = contract

        self.step(act, **changes, **{name: name for name in added or {}})

    def add(self) -> None:
        self.change({}, {self._new_name(): self.random.choice(["int32", "string", "list<int32>"])})

    def _other(self) -> str | None:
        found = sorted(self.names_of(self.newest.version).keys() - {"k"})
        return self.random.choice(found) if len(found) > 1 else None

    def rename(self) -> None:
        if name := self._other():
            self.change({name: f"{name}_{self._new_name()}"})

    def drop(self) -> None:
        if name := self._other():
            self.change({name: None})

    def widen(self) -> None:
        """Every fragment gets a file with the wider column, in one commit."""
        pinned = self.newest
        narrow = [c for c in self.contract.columns if c.type == "int32"]
        if not narrow or not self.is_ours or not pinned.fragments():
            return
        column = self.random.choice(narrow)
        highest = max(self.contract.highest_field_id or 0, *self.contract.field_ids)
        wide = {"type": "int64", "field_ids": (highest + 1,), "first_ids": column.ids}
        made = [c.model_copy(update=wide) if c is column else c for c in self.contract.columns]
        version = self.contract.version + 1
        terms = {"format": 2, "version": version, "columns": tuple(made), "columns_change": f"{version}-{version:x}"}
        contract = self.contract.model_copy(update={**terms, "highest_field_id": highest + 1})
        schema = pa.schema([(column.name, pa.int64())])
        written = tuple(
            pinned.write_widened(f.fragment_id, schema, {column.name: (highest + 1,)}) for f in pinned.fragments()
        )
        commit = ColumnsCommit(
            pinned.version, contract.rows.table, contract.fields_of, {}, contract.columns_change, fragments=written
        )
        logical = next(n for n, own in self.names_of(pinned.version).items() if own == column.name)

        def act() -> None:
            landed(self.table.change_columns(commit))
            put_once(self.store, paths.contract_version(version, None), encode_contract(contract))
            self.contract = contract
            self.wide.add(logical)

        self.step(act)

    def add_by_others(self) -> None:
        name = self._new_name()
        if self.folder is not None and self.random.random() < 0.5:
            dataset: Any = lance.dataset(str(self.folder))
            self.step(lambda: dataset.add_columns({name: "nullif(k % 7, 0)"}), **{name: name})
        else:
            self.step(lambda: self.user.add_column(name), **{name: name})

    def rename_by_others(self) -> None:
        if name := self._other():
            new = f"{name}_{self._new_name()}"
            self.step(lambda: self.user.rename_column(self.names_of(self.newest.version)[name], new), **{name: new})

    def drop_by_others(self) -> None:
        if name := self._other():
            self.step(lambda: self.user.drop_column(self.names_of(self.newest.version)[name]), **{name: None})

    # -- others --------------------------------------------------------------------------------------------------

    def restore(self, version: int | None = None) -> None:
        version = version or self.random.randint(1, self.newest.version)
        self.user.restore(version)
        self.names[self.newest.version] = self.names_of(version)

    def index(self) -> None:
        self.step(self.user.create_index)

    def config(self) -> None:
        self.step(self.user.update_config)

    def random_step(self) -> None:
        often: list[Callable[[], None]] = [
            self.append,
            self.delete,
            self.update,
            lambda: self.update(same=True),
            self.in_place,
            lambda: self.rewrite(file_rows=self.random.choice([3, 8, 1_000]), copy=self.random.random() < 0.5),
            self.rewrite,
            self.compact,
        ]
        columns = [self.add, self.rename, self.drop, self.widen]
        seldom = [self.add_by_others, self.rename_by_others, self.drop_by_others, self.restore, self.index, self.config]
        act = self.random.choice(self.random.choices([often, columns, seldom], [12, 3, 2])[0])
        self.done.append(f"{self.newest.version}: {getattr(act, '__qualname__', act)}")
        act()

    # -- reading -------------------------------------------------------------------------------------------------

    def opened(self, table: StoredTable | None = None) -> OpenedTable:
        return OpenedTable.over(self.store, table or self.table, self.contract, InlineTasks(), SystemClock())

    def rows_wanted(self, version: int) -> RowSchema:
        """The columns of a read of this version."""
        return columns_of_plan(self.opened(), self.table.at(version), cast("ReadPlan", SimpleNamespace(deltas=())))

    def between(self, before: int, after: int, columns: Sequence[str] | None = None, end: int | None = None) -> Between:
        """``columns``: names here, by default all, of the columns of version ``end``, by default that of ``after``."""
        end = after if end is None else end
        names = self.names_of(end)
        wanted = list(names.values()) if columns is None else [names[name] for name in columns]
        versions = self.table.at(before), self.table.at(after)
        return between(self.opened(), *versions, self.rows_wanted(end), wanted)

    def rows_of(self, pinned: PinnedTable, columns: Sequence[str]) -> Live:
        """Live rows of a version with columns by their names here; those that the version lacks are null."""
        names = self.names_of(pinned.version)
        own = [names[name] for name in columns if name in names]
        found: Live = {}
        for batch in pinned.scan(own, with_row_address=True):
            cells = {name: batch[names[name]].to_pylist() for name in columns if name in names}
            rows = zip(*(cells.get(name, [None] * batch.num_rows) for name in columns), strict=True)
            found.update(zip(batch[ROW_ADDRESS].to_pylist(), rows, strict=True))
        return found

    def check(self, before: int, after: int, columns: Sequence[str] | None = None) -> Between:
        """Hold ``between`` to its guarantees by reading both versions whole."""
        columns = sorted(self.names_of(after)) if columns is None else columns
        found = self.between(before, after, columns)
        shown = []
        for version, gone in ((before, found.gone), (after, found.come)):
            assert gone.dtype == np.uint64
            assert (np.diff(gone.astype(np.int64)) > 0).all()
            live = self.rows_of(self.table.at(version), list(dict.fromkeys(["k", *columns])))
            assert set(gone.tolist()) <= live.keys()
            left = {cells[0]: repr(cells) for address, cells in live.items() if address not in set(gone.tolist())}
            assert len(left) == len(live) - len(gone)
            shown.append(left)
        assert shown[0] == shown[1], (before, after, columns, self.done)
        return found


def landed(outcome: CommitOutcome) -> None:
    assert isinstance(outcome, Committed), outcome


def _stored(pinned: PinnedTable, fragment: Fragment) -> set[str]:
    """Columns that a fragment's files hold: of others there is nothing to write in place."""
    held = {i for own in fragment.file_fields for i in own}
    return {name for name, ids in pinned.field_ids.items() if not held.isdisjoint(ids)}


def _any(type_: pa.DataType, chance: random.Random) -> Any:
    if chance.random() < 0.15:
        return None
    if pa.types.is_struct(type_):
        return {member.name: _any(member.type, chance) for member in type_}
    if pa.types.is_list(type_):
        return [_any(type_.value_type, chance) for _ in range(chance.randint(0, 3))]
    return f"t{chance.randint(0, 5)}" if pa.types.is_string(type_) else chance.randint(0, 5)
