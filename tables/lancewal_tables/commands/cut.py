"""``lancewal cut make|list|show|drop``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import NOTHING_CHANGED, DryRunOption, SettingsAsked, YesOption, agree
from lancewal_core.cli.output import aligned, one_line, say
from lancewal_core.errors import CutMissing, LancewalError, TableMissing, counted, or_error
from lancewal_core.names.words import cut_name
from lancewal_core.process.clock import SystemClock, utc_text
from lancewal_core.process.tasks import Tasks, ThreadTasks
from lancewal_core.settings.durations import option_s

if TYPE_CHECKING:
    from lancewal_core.catalog.catalog import StoredCatalog
    from lancewal_core.catalog.cut import Cut
    from lancewal_core.catalog.entry import TableEntry
    from lancewal_core.settings.load import Settings
    from lancewal_core.table.protocol import StoredTable
    from lancewal_flusher.cuts.positions import CutMember
    from lancewal_tables.cuts.held import HeldByCut
    from lancewal_tables.cuts.left_over import OfCut

app = CommandApp(help="Make, list, show and drop cuts: states of several tables of a catalog that are read together.")

NameArgument = Annotated[str, typer.Argument(help="Name of the cut.", show_default=False)]
_AT_ONCE = 16
"""Number of snapshots that are made at the same time.  Each waits for some fifty requests, one after the other, and has
the unmerged rows of its table in memory.  A cut of 40 idle tables 30 ms away took 10.3 s with 8, 7.8 s with 16, and 5.9
s with 32."""


class UpTo(StrEnum):
    """Choices of ``--up-to``: a cut reaches Kafka's ends, or the durable positions of its tables."""

    ENDS = "ends"
    DURABLE = "durable"


@app.command()
def make(
    asked: SettingsAsked,
    name: NameArgument,
    tables: Annotated[
        list[str],
        typer.Option(
            help="Names of tables in the catalog, in which * stands for any characters; repeatable.",
            metavar="PATTERN",
            show_default=False,
        ),
    ],
    duration: Annotated[
        str,
        typer.Option("--for", help="Let garbage collection drop it after this time, such as 7d.", metavar="DURATION"),
    ] = "",
    up_to: Annotated[
        UpTo,
        typer.Option(help="ends: all that Kafka has committed by now; durable: what the tables have, without Kafka."),
    ] = UpTo.ENDS,
    wait: Annotated[
        str,
        typer.Option(help="How long to wait until the tables have all that Kafka has committed.", metavar="DURATION"),
    ] = "60s",
) -> None:
    """Keep several tables as of one moment under a name, until the cut is dropped.

    By default, all records that Kafka has acknowledged before the call are in the cut. To read a table at the cut, give
    `cut:NAME` as the point.

    Example: lancewal cut make june --tables 'shop.*' --for 30d
    """
    from lancewal_core.catalog.catalog import tables_matching
    from lancewal_flusher.cuts.ends import kafka_ends
    from lancewal_tables.cuts.make import CutWanted, make_cut

    for_ms = int(option_s("--for", duration) * 1000) if duration else None
    wanted = CutWanted(name, for_ms, option_s("--wait", wait))
    settings, catalog = asked.settings_and_catalog()
    with ExitStack() as stack:
        tasks = ThreadTasks(io_threads=_AT_ONCE)
        stack.callback(tasks.close)
        if up_to is UpTo.ENDS:
            settings.need("kafka.bootstrap_servers")
        found = tables_matching(catalog, tuple(tables))
        members = _open(settings, found, stack, tasks)
        source = kafka_ends(settings.kafka.client(), tasks) if up_to is UpTo.ENDS else None
        cut = make_cut(catalog, members, wanted, source, tasks)
    lines = [_line(cut), *_table_lines(cut, {})]
    asked.report({"cut": _about(cut, {})}, "\n".join(lines))


@app.command("list")
def list_all(asked: SettingsAsked) -> None:
    """List the cuts of the catalog, and snapshots that interrupted runs of `cut make` have left.

    Example: lancewal cut list
    """

    settings, catalog = asked.settings_and_catalog()
    with closing(ThreadTasks()) as tasks:
        cuts = catalog.cuts()
        kept = {cut.write_id for cut in cuts.values()}
        left = [(entry, one) for entry, one in _snapshots(settings, catalog, tasks) if one.note.write_id not in kept]
    rows = [[cut.name, *_columns(cut)] for cut in cuts.values()]
    lines = aligned(rows) or ["no cuts"]
    lines += [_left_over(entry, one, made=one.note.cut in cuts) for entry, one in left]
    content = {
        "cuts": [_about(cut, {}) for cut in cuts.values()],
        "left_over": [{"table": entry.name, "snapshot": one.branch.name, "cut": one.note.cut} for entry, one in left],
    }
    asked.report(content, "\n".join(lines))


def _left_over(entry: TableEntry, one: OfCut, *, made: bool) -> str:
    """Return the line about a snapshot that is left over.  ``made``: the catalog has a cut of that name, which must
    stay."""
    from lancewal_core.table.snapshots import is_unfinished

    name, cut = one_line(one.branch.name), one.note.cut
    if is_unfinished(one.branch):
        return (
            f"left over: snapshot {name} of {entry.name}, not finished: it is being made for a cut {cut}, or its command "
            f"died. If nobody makes it: {_dropped_by(entry, one)}"
        )
    if made:
        return (
            f"left over: snapshot {name} of {entry.name}, of an earlier making of cut {cut}: {_dropped_by(entry, one)}"
        )
    return (
        f"left over: snapshot {name} of {entry.name}, of a cut {cut} that was not made, or is being made. If nobody makes "
        f"it: `lancewal cut drop {cut}`"
    )


def _dropped_by(entry: TableEntry, one: OfCut) -> str:
    return f"`lancewal snapshot drop {one_line(one.branch.name)} -t {entry.name}`"


@app.command()
def show(asked: SettingsAsked, name: NameArgument) -> None:
    """Show a cut: its moment, its tables with their positions, and how many bytes it keeps from deletion.

    Exit code 1: the cut is incomplete. A table or its snapshot was dropped, or its folder is gone.

    Example: lancewal cut show june
    """
    from lancewal_core.catalog.catalog import found_cut
    from lancewal_core.open import Address, open_at
    from lancewal_tables.cuts.held import look_at

    settings, catalog = asked.settings_and_catalog()
    with closing(ThreadTasks()) as tasks:
        cut = found_cut(catalog, name)
        held = look_at(cut, lambda uri: open_at(Address.of(settings, uri), tasks, SystemClock()), tasks)
    asked.report({"cut": _about(cut, held)}, "\n".join([_line(cut), *_table_lines(cut, held)]))
    if any(one.fault for one in held.values()):
        raise typer.Exit(1)


@app.command()
def drop(asked: SettingsAsked, name: NameArgument, dry_run: DryRunOption = False, yes: YesOption = False) -> None:
    """Drop a cut and its snapshots. Also drop snapshots that interrupted runs of `cut make` with that name have left.

    Example: lancewal cut drop june --yes
    """
    from lancewal_core.table.snapshots import is_unfinished

    cut_name(name)
    settings, catalog = asked.settings_and_catalog()
    with closing(ThreadTasks()) as tasks:
        cut = catalog.cut(name)
        left = [(entry, one) for entry, one in _snapshots(settings, catalog, tasks) if one.note.cut == name]
        left = [(entry, one) for entry, one in left if cut is None or not _keeps(cut, entry, one)]
        if cut is None and not left:
            raise CutMissing(
                f"the catalog {catalog.where} has no cut {name}: `lancewal cut list` shows its cuts", cut=name
            )
        if not dry_run:
            agree(yes, f"cut {name} is dropped" if cut is not None else f"snapshots of cut {name} are dropped")
            gone, number = _drop(settings, catalog, cut, left, tasks)
        else:
            gone = [(entry, one) for entry, one in left if not is_unfinished(one.branch)]
            number = 0 if cut is None else sum(of.snapshot is not None for of in cut.tables.values())
    again = ". A flusher with this cut in flusher.cuts publishes it again" if cut is not None and cut.moving else ""
    snapshots = f", and its snapshots of {counted(number, 'table')}" if number else ""
    dropped = [f"cut {name}{snapshots}{again}"] if cut is not None else []
    dropped += [f"snapshot {one.branch.name} of {entry.name}, left over" for entry, one in gone]
    lines = [f"{'would drop' if dry_run else 'dropped'} {one}" for one in dropped]
    lines += [
        f"snapshot {one.branch.name} of {entry.name} stays: it is not finished. If nobody makes it: {_dropped_by(entry, one)}"
        if is_unfinished(one.branch)
        else f"snapshot {one.branch.name} of {entry.name} stays, or was dropped already: its cut was made or dropped meanwhile"
        for entry, one in left
        if (entry, one) not in gone
    ]
    content = {
        "dropped": [name] if cut is not None and not dry_run else [],
        "left_over": [] if dry_run else [one.branch.name for _, one in gone],
    }
    asked.report(content, "\n".join([*lines, *([NOTHING_CHANGED] if dry_run else [])]))


def _drop(
    settings: Settings, catalog: StoredCatalog, cut: Cut | None, left: Sequence[tuple[TableEntry, OfCut]], tasks: Tasks
) -> tuple[list[tuple[TableEntry, OfCut]], int]:
    """Drop the cut.  Return the items of ``left`` that were dropped, and the number of dropped snapshots of the cut
    itself."""
    from lancewal_tables.cuts.drop import drop_cut
    from lancewal_tables.cuts.left_over import drop_if_left_over

    answers: Mapping[str, bool | LancewalError] = {}
    if cut is not None:
        tables = {table: _table(settings, of.uri) for table, of in cut.tables.items() if of.snapshot is not None}
        answers = drop_cut(catalog, cut, tables, tasks)
        for table, answer in answers.items():
            if isinstance(answer, TableMissing):
                say(
                    f"table {table} is gone, and its snapshot with it: nothing lies at {cut.tables[table].uri}",
                    err=True,
                )
            elif isinstance(answer, LancewalError):
                say(f"table {table}: its snapshot stays: {answer.kind}: {one_line(str(answer))}", err=True)
    gone = [(entry, one) for entry, one in left if drop_if_left_over(catalog, _table(settings, entry.uri), one)]
    return gone, sum(answer is True for answer in answers.values())


def _keeps(cut: Cut, entry: TableEntry, one: OfCut) -> bool:
    """Return whether the cut reads this snapshot, whose note names a cut of this name.  False if the table's folder was
    moved: the cut looks for snapshots at the former place."""
    from lancewal_core.store.address import place_of, same_place

    of = cut.tables.get(one.note.table)
    here = of is not None and same_place(place_of(of.uri), place_of(entry.uri))
    return here and one.note.write_id == cut.write_id


def _table(settings: Settings, uri: str) -> StoredTable:
    from lancewal_core.open import Address

    return Address.of(settings, uri).table()


def _snapshots(settings: Settings, catalog: StoredCatalog, tasks: Tasks) -> list[tuple[TableEntry, OfCut]]:
    """Return the snapshots of cuts in all active tables, each with the table's entry.  Tables that cannot be read are left
    out."""
    from lancewal_tables.cuts.left_over import snapshots_of_cuts

    active = [entry for entry in catalog.tables().values() if entry.state == "active"]

    def look(entry: TableEntry) -> list[OfCut] | LancewalError:
        return or_error(lambda: snapshots_of_cuts(_table(settings, entry.uri), catalog.where))

    found = tasks.map(look, active)
    return [
        (entry, one) for entry, of in zip(active, found, strict=True) if not isinstance(of, LancewalError) for one in of
    ]


def _open(settings: Settings, found: Mapping[str, TableEntry], stack: ExitStack, tasks: Tasks) -> list[CutMember]:
    """Open the tables of a cut.  An error names the table.

    Each table gets an equal part of a reader's cache.  Without a cache, a snapshot would fetch each unmerged segment
    twice, and could not use bundles.
    """
    from lancewal_flusher.cuts.positions import open_member
    from lancewal_flusher.open import Threads
    from lancewal_reader.table import CACHE_BYTES_MAX

    threads, cache = Threads.of(settings, stack), CACHE_BYTES_MAX // max(1, len(found))
    return tasks.map(lambda entry: open_member(settings, entry, threads, stack, cache), list(found.values()))


def _about(cut: Cut, held: Mapping[str, HeldByCut]) -> dict[str, object]:
    """Return the JSON of a cut.  ``held``: the states of its tables by name; empty if they were not looked at."""
    from lancewal_reader.cuts import positions_of

    tables = {}
    for name, of in cut.tables.items():
        seen = held.get(name)
        tables[name] = {
            "table": of.uri,
            "positions": {str(partition): at for partition, at in positions_of(of).items()},
            "snapshot": of.snapshot,
            "receipt": of.receipt,
            **({} if seen is None else {"bytes": seen.nbytes, "fault": seen.fault or None}),
        }
    return {
        "name": cut.name,
        "moving": cut.moving,
        "number": cut.number,
        "holds": cut.holds,
        "asked_at": utc_text(cut.asked_ms),
        "took_ms": cut.took_ms,
        "made_at": utc_text(cut.made_ms),
        "until": None if cut.until_ms is None else utc_text(cut.until_ms),
        "tables": tables,
        "left_out": cut.left_out,
        **({"complete": not any(one.fault for one in held.values())} if held else {}),
    }


def _columns(cut: Cut) -> list[str]:

    until = "until it is dropped" if cut.until_ms is None else f"until {utc_text(cut.until_ms)}"
    kind = f"moving, number {cut.number}" if cut.moving else until
    return [counted(len(cut.tables), "table"), f"as of {utc_text(cut.asked_ms)}", kind, f"holds {cut.holds}"]


def _line(cut: Cut) -> str:
    return f"cut {cut.name}: {', '.join(_columns(cut))}. The round of questions took {cut.took_ms} ms"


def _table_lines(cut: Cut, held: Mapping[str, HeldByCut]) -> list[str]:
    from lancewal_reader.cuts import positions_of

    rows = []
    for name, of in cut.tables.items():
        seen = held.get(name)
        said = [] if seen is None or not seen.fault else [one_line(seen.fault)]
        if not said and seen is not None and seen.nbytes is not None:  # a moving cut holds nothing
            said = [f"{seen.nbytes} bytes held"]
        at = ", ".join(f"{partition}={position}" for partition, position in positions_of(of).items())
        rows.append([name, f"positions {at}", *said])
    left = [f"left out: {name}: {one_line(why)}" for name, why in cut.left_out.items()]
    return [*aligned(rows), *left]
