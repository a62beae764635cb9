"""A command that changes columns, in its four steps, and a process that runs it again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from lancewal_core.errors import StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.rows.column_types import format_type
from lancewal_core.store.object_store import Done, Lost, put_once
from lancewal_core.table.contract import (
    Column,
    Contract,
    DroppedField,
    FormerName,
    columns_version,
    encode_contract,
    newest_contract,
    read_contract_version,
)
from lancewal_core.table.protocol import ColumnsCommit, Committed, PinnedTable, columns_mark
from tests.simulation.columns import TYPES
from tests.simulation.draws import drawn_s
from tests.simulation.world import Process, World

UNFINISHED = ".."


@dataclass(frozen=True, slots=True)
class Change:
    """What a command changes, by name."""

    add: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()


class Refused(Exception):
    """The change does not fit the columns as they are now."""


def change_columns(process: Process, change: Change) -> Contract:
    """Run the command to its end."""
    while True:
        pinned, contract = bring(process)
        following = next_contract(contract, pinned, change, process.new_id())
        if not grow(process, pinned, contract, following):
            continue
        if put_contract(process, following):
            break
    bring(process)
    return following


def look(process: Process) -> tuple[PinnedTable, Contract]:
    """The newest version, and the newest contract.  The table is pinned first: a change by a later contract conflicts."""
    pinned = process.table.newest()
    contract = newest_contract(process.store)
    assert contract is not None
    return pinned, contract


def bring(process: Process) -> tuple[PinnedTable, Contract]:
    """Steps 1 and 4: the newest version has the columns of the newest contract; both."""
    while True:
        pinned, contract = look(process)
        if (columns_mark(pinned) or None) == contract.columns_change:
            return pinned, contract
        gone = dropped_ids(process, pinned, contract)
        process.table.change_columns(commit_of(pinned, contract, contract.columns_change or "", gone))


def dropped_ids(process: Process, pinned: PinnedTable, contract: Contract) -> set[int]:
    """Ids of fields to drop: those of the contract that the version's mark names, which the newest one lacks."""
    plain = (columns_mark(pinned) or "").partition(UNFINISHED)[0]
    had = read_contract_version(process.store, contract, columns_version(plain))
    return set(had.field_ids) - set(contract.field_ids)


def grow(process: Process, pinned: PinnedTable, contract: Contract, following: Contract) -> bool:
    """Step 2: the table has the new names and fields, beside those that are to be dropped."""
    mark = f"{contract.columns_change or ''}{UNFINISHED}{following.columns_change}"
    outcome = process.table.change_columns(commit_of(pinned, following, mark, set()))
    return isinstance(outcome, Committed) or columns_mark(process.table.newest()) == mark


def put_contract(process: Process, following: Contract) -> bool:
    """Step 3: whether this is the next version now."""
    key = paths.contract_version(following.version, following.making)
    while True:
        outcome = put_once(process.store, key, encode_contract(following))
        if isinstance(outcome, Done):
            return True
        if isinstance(outcome, Lost):
            return False
        process.clock.sleep(0.1)


def next_contract(contract: Contract, pinned: PinnedTable, change: Change, random: str) -> Contract:
    """The contract with the change."""
    left = _left_behind(contract, pinned)
    taken = {name.lower() for name in pinned.schema.names} - {n for n in change.add if n in left}
    names = {c.name for c in contract.columns}
    if taken & {*change.add, *change.rename.values()} or not names >= {*change.rename, *change.drop}:
        raise Refused
    columns = [
        c.model_copy(update={"name": change.rename.get(c.name, c.name)})
        for c in contract.columns
        if c.name not in change.drop
    ]
    highest = highest_id(contract, pinned)
    for name in change.add:
        highest += name not in left
        columns.append(Column(name=name, type=TYPES[name], field_ids=(left.get(name, highest),)))
    ids = {c.name: c.ids[0] for c in contract.columns}
    former = [*contract.former_names, *(FormerName(id=ids[old], name=old) for old in change.rename)]
    now = {c.name for c in columns}
    kept = {c.ids[0] for c in columns}
    version = contract.version + 1
    return contract.model_copy(
        update={
            "format": 2,
            "version": version,
            "columns": tuple(columns),
            "columns_change": f"{version}-{random}",
            "highest_field_id": highest,
            "former_names": tuple(f for f in former if f.name not in now and f.id in kept),
            "dropped": (
                *contract.dropped,
                *(DroppedField(name=n) for n in change.drop),
            ),
        }
    )


def _left_behind(contract: Contract, pinned: PinnedTable) -> dict[str, int]:
    """Ids of columns that a command may have left before it died: no contract and no file has named them."""
    in_files = {i for f in pinned.fragments() for ids in f.file_fields for i in ids}
    named = set(contract.field_ids)
    return {
        f.name: pinned.field_ids[f.name][0]
        for f in pinned.schema
        if not any(i in named for i in pinned.field_ids[f.name])
        and in_files.isdisjoint(pinned.field_ids[f.name])
        and format_type(f.type) == TYPES.get(f.name)
    }


def highest_id(contract: Contract, pinned: PinnedTable) -> int:
    """The highest id that the contract, the table's schema or a data file has named."""
    of_files = [i for f in pinned.fragments() for ids in f.file_fields for i in ids]
    of_schema = [i for ids in pinned.field_ids.values() for i in ids]
    return max(contract.highest_field_id or 0, *contract.field_ids, *of_schema, *of_files)


def commit_of(pinned: PinnedTable, contract: Contract, mark: str, gone: set[int]) -> ColumnsCommit:
    """The contract's columns, and behind them all others but those with an id that is ``gone``."""
    without = {*contract.field_ids, *gone}
    behind = [f for f in pinned.schema if without.isdisjoint(pinned.field_ids[f.name])]
    schema = pa.schema([*contract.rows.table, *behind])
    ids = {**contract.fields_of, **{f.name: pinned.field_ids[f.name] for f in behind}}
    return ColumnsCommit(pinned.version, schema, ids, {}, mark)


def changer(world: World, process: Process) -> None:
    """Changes columns now and then."""
    while True:
        world.scheduler.sleep(drawn_s(process.rng, 1.0))
        change = drawn(world, process.rng)
        try:
            contract = change_columns(process, change)
        except Refused:
            world.note("change of columns: refused")
        except StoreUnavailable:
            world.note("change of columns: StoreUnavailable")
        else:
            world.note("change of columns")
            world.log(f"{process.name}: {change} is version {contract.version}")


def drawn(world: World, rng: Random) -> Change:
    """Some change that fits the newest contract."""
    now = [c.name for c in world.contract.columns if c.name in TYPES]
    free = [name for name in TYPES if name not in now]
    kind = rng.random()
    if free and (kind < 0.4 or not now):
        return Change(add=tuple(rng.sample(free, rng.randint(1, min(2, len(free))))))
    name = rng.choice(now)
    to = [n for n in free if TYPES[n] == TYPES[name]]
    if kind < 0.7 and to:
        return Change(rename={name: rng.choice(to)})
    return Change(drop=(name,))
