"""The command that changes columns, and a process that runs it again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from lancewal_core.errors import CommitUnknown, ContractChanged, ContractMismatch, InvalidInput, StoreUnavailable
from lancewal_core.rows.column_types import parse_type
from lancewal_core.table.columns import steps as command
from lancewal_core.table.columns.changes import Added, Adopted, Dropped, Forgotten, Path, Renamed, Widened
from lancewal_core.table.columns.changes import Change as ColumnChange
from lancewal_core.table.contract import Contract
from tests.simulation.columns import MEMBERS, TYPES, Part
from tests.simulation.draws import drawn_s
from tests.simulation.world import Process, World

WIDER = {"int32": "int64"}
DEFAULTS = {"int32": "32", "int64": "64", "string": '"none"'}


@dataclass(frozen=True, slots=True)
class Change:
    """What a command changes, by name: ``c``, or ``s.p`` for a member."""

    add: tuple[str, ...] = ()
    default: tuple[str, ...] = ()
    """Columns to add with a default."""
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    widen: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()
    adopt: tuple[str, ...] = ()
    """Columns of other programs; ``*``: all."""


def change_columns(process: Process, change: Change) -> Contract:
    """Run the command to its end."""
    changes: list[ColumnChange] = [
        *(Renamed(_path(old), new) for old, new in change.rename.items()),
        *(Added(_path(name), parse_type(_type(name))) for name in change.add),
        *(Added((name,), parse_type(TYPES[name]), DEFAULTS[TYPES[name]]) for name in change.default),
        *(Widened(_path(name), parse_type("int64")) for name in change.widen),
        *(Dropped(_path(name)) for name in change.drop),
        *(Forgotten(_path(name)) for name in change.forget),
        *(Adopted(() if name == "*" else (name,)) for name in change.adopt),
    ]
    return command.change_columns(process.store, process.table, process.clock, process.new_id, changes)


def _path(name: str) -> Path:
    return tuple(name.split("."))


def _type(name: str) -> str:
    *outer, own = name.split(".")
    return (MEMBERS if outer else TYPES)[own]


def changer(world: World, process: Process) -> None:
    """Changes columns now and then."""
    while True:
        world.scheduler.sleep(drawn_s(process.rng, 1.0))
        change = drawn(world, process.rng)
        try:
            contract = change_columns(process, change)
        except InvalidInput as error:
            world.note("change of columns: refused")
            world.log(f"{process.name}: {change} is refused: {error}")
        except (StoreUnavailable, CommitUnknown, ContractChanged) as error:
            world.note(f"change of columns: {type(error).__name__}")
        except ContractMismatch as error:
            world.note("change of columns: ContractMismatch")
            world.check_misfits(error)
        else:
            world.note("change of columns")
            for act in ("add", "default", "rename", "drop", "widen", "forget", "adopt"):
                asked = getattr(change, act)
                world.counts[f"columns: {act}"] = world.counts.get(f"columns: {act}", 0) + bool(asked)
                if any("." in name for name in asked):
                    world.note(f"columns: {act} members")
            world.log(f"{process.name}: {change} is version {contract.version}")


def drawn(world: World, rng: Random) -> Change:
    """Some change that fits the newest contract, as far as that is not refused."""
    assert world.columns is not None
    contract = world.contract
    columns = {name: part for name, part in world.columns.parts(contract.version).items() if name != "a"}
    structs = {name: _struct(part) for name, part in columns.items()}
    places: dict[str, tuple[Mapping[str, Part], Mapping[str, str]]] = {"": (columns, TYPES)}
    places |= {f"{n}.": ({m.name: m for m in part.within}, MEMBERS) for n, part in structs.items() if part is not None}
    # A struct is there for a part of the time only, so members change twice as often as columns then.
    outer = rng.choice([*places, *(place for place in places if place)])
    now, names = places[outer]
    free = [name for name in names if name not in now]
    nested = [name for name in free if "<" in names[name]]
    match rng.choices(("add", "default", "rename", "drop", "widen", "forget", "adopt"), (4, 2, 3, 2, 5, 1, 2))[0]:
        case "add" if nested and rng.random() < 0.6:
            return Change(add=(rng.choice(nested),))
        case "add" if free:
            return Change(add=tuple(outer + n for n in rng.sample(free, rng.randint(1, min(2, len(free))))))
        case "default" if plain := [name for name in TYPES if name not in columns and TYPES[name] in DEFAULTS]:
            return Change(default=(rng.choice(plain),))
        case "rename" if now:
            name = rng.choice(sorted(now))
            to = [n for n in free if _kind(names[n]) == _kind(str(now[name].type))]
            if to:
                return Change(rename={outer + name: rng.choice(to)})
        case "widen" if narrow := [name for name in sorted(now) if str(now[name].type) in WIDER]:
            return Change(widen=(outer + rng.choice(narrow),))
        case "adopt":
            return Change(adopt=("*",))
        case "forget":
            ids = {part.id for part in now.values()}
            within = None if not outer else _id(structs, outer[:-1])
            found = [f.name for f in contract.former_names if f.id in ids]
            found += [d.name for d in contract.dropped if d.within == within and not d.forgotten]
            if found:
                return Change(forget=(outer + rng.choice(found),))
    if now:
        return Change(drop=(outer + rng.choice(sorted(now)),))
    return Change(add=(outer + rng.choice(free),))


def _struct(part: Part) -> Part | None:
    """The struct in a column: itself, or the items of a list."""
    found = part.within[0] if str(part.type).startswith("list") else part
    return found if found.within else None


def _id(structs: Mapping[str, Part | None], name: str) -> int:
    found = structs[name]
    assert found is not None
    return found.id


def _kind(type_: str) -> str:
    """What renames leave alone."""
    return "int" if type_.startswith("int") else type_.partition("<")[0]
