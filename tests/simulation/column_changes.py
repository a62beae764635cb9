"""The command that changes columns, and a process that runs it again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from lancewal_core.errors import CommitUnknown, ContractChanged, InvalidInput, StoreUnavailable
from lancewal_core.rows.column_types import parse_type
from lancewal_core.table.columns import steps as command
from lancewal_core.table.columns.changes import Added, Adopted, Dropped, Renamed
from lancewal_core.table.columns.changes import Change as ColumnChange
from lancewal_core.table.contract import Contract
from tests.simulation.columns import TYPES
from tests.simulation.draws import drawn_s
from tests.simulation.world import Process, World


@dataclass(frozen=True, slots=True)
class Change:
    """What a command changes, by name."""

    add: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    adopt: tuple[str, ...] = ()


def change_columns(process: Process, change: Change) -> Contract:
    """Run the command to its end."""
    changes: list[ColumnChange] = [
        *(Renamed((old,), new) for old, new in change.rename.items()),
        *(Added((name,), parse_type(TYPES[name])) for name in change.add),
        *(Dropped((name,)) for name in change.drop),
        *(Adopted(() if name == "*" else (name,)) for name in change.adopt),
    ]
    return command.change_columns(process.store, process.table, process.clock, process.new_id, changes)


def changer(world: World, process: Process) -> None:
    """Changes columns now and then."""
    while True:
        world.scheduler.sleep(drawn_s(process.rng, 1.0))
        change = drawn(world, process.rng)
        try:
            contract = change_columns(process, change)
        except InvalidInput:
            world.note("change of columns: refused")
        except (StoreUnavailable, CommitUnknown, ContractChanged) as error:
            world.note(f"change of columns: {type(error).__name__}")
        else:
            world.note("change of columns")
            world.log(f"{process.name}: {change} is version {contract.version}")


def drawn(world: World, rng: Random) -> Change:
    """Some change that fits the newest contract."""
    now = [c.name for c in world.contract.columns if c.name in TYPES]
    free = [name for name in TYPES if name not in now]
    if rng.random() < 0.2:
        return Change(adopt=("*",))
    kind = rng.random()
    if free and (kind < 0.4 or not now):
        return Change(add=tuple(rng.sample(free, rng.randint(1, min(2, len(free))))))
    name = rng.choice(now)
    to = [n for n in free if TYPES[n] == TYPES[name]]
    if kind < 0.7 and to:
        return Change(rename={name: rng.choice(to)})
    return Change(drop=(name,))
