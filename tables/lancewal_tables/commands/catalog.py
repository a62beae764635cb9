"""``lancewal catalog init|migrate|list|show|register|forget|check|rebuild``: tables by name."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import Asked, CutsOption, Output, SettingsAsked
from lancewal_core.cli.output import aligned, figure, one_line, say, terms
from lancewal_core.errors import InvalidInput, counted
from lancewal_core.process.clock import utc_text
from lancewal_tables.commands.contract_text import lacking_text

if TYPE_CHECKING:
    from lancewal_core.catalog.entry import TableEntry
    from lancewal_flusher.catalog.check import CatalogFinding
    from lancewal_tables.catalog.overview import TableLine
    from lancewal_tables.catalog.registration import Registered

app = CommandApp(help="Find tables by name. The settings say where the catalog is (catalog.root).")

NameArgument = Annotated[str, typer.Argument(help="Name of the table, such as shop.orders.", show_default=False)]


class Order(StrEnum):
    NAME = "name"
    LAG = "lag"


@app.command()
def init(asked: SettingsAsked) -> None:
    """Make the catalog that the settings name. A catalog that exists already is not changed.

    The command makes the folder `catalog.root`, and checks that its store keeps put-if-absent. In PostgreSQL it makes
    or upgrades the schema `lancewal`; the role must have the right to create it. The command warns if the server may
    lose changes that it has just confirmed.

    Example: lancewal catalog init -c lancewal.yaml
    """
    from lancewal_tables.catalog.root import make_root, make_schema

    settings = asked.settings()
    schema, warnings = make_schema(settings)
    catalog = make_root(settings)
    tables = len(catalog.tables())
    content = {"catalog": catalog.where, "tables": tables, "schema": schema, "warnings": warnings}
    lines = [f"catalog {catalog.where}: {counted(tables, 'table')}", *(f"warning: {text}" for text in warnings)]
    asked.report(content, "\n".join(lines))


@app.command()
def migrate(asked: SettingsAsked) -> None:
    """Upgrade the schema of a catalog in PostgreSQL, after all services have been upgraded.

    Services refuse a schema that is newer than they are. They work with the schema of the release before. The role must
    own the schema.

    Example: lancewal catalog migrate -c lancewal.yaml
    """
    from lancewal_tables.catalog.root import upgrade_schema

    before, now = upgrade_schema(asked.settings())
    what = f"the schema has version {now}"
    text = f"{what} already" if before == now else f"{what}; it had version {before}"
    asked.report({"before": before, "now": now}, text)


@app.command("list")
def list_all(
    asked: SettingsAsked,
    by: Annotated[Order, typer.Option(help="Order of the tables; lag: the worst first.")] = Order.NAME,
) -> None:
    """List the catalog's tables with state, rows, newest version and lag.

    The lag is an upper bound of the number of records in Kafka that are not durable. The command opens each table. A
    table that cannot be opened has its error instead of figures.

    Example: lancewal catalog list --by lag
    """
    from lancewal_tables.catalog.overview import overview, worst_first

    settings, catalog = asked.settings_and_catalog()
    lines = overview(catalog, settings)
    if by is Order.LAG:
        lines = worst_first(lines)
    asked.report({"tables": [asdict(line) for line in lines]}, _overview_text(lines))


@app.command()
def show(asked: SettingsAsked, name: NameArgument) -> None:
    """Show the catalog's entry of a table. `lancewal table show -t NAME` shows its contract.

    Example: lancewal catalog show shop.orders
    """
    from lancewal_core.catalog.catalog import found_table

    entry = found_table(asked.settings_and_catalog()[1], name)
    asked.report(entry.model_dump(mode="json"), "\n".join(terms(_said(entry))))


@app.command()
def register(asked: Asked, name: NameArgument, cut: CutsOption = None) -> None:
    """Add an existing lancewal table to the catalog, and write the name into its contract.

    Without an address, the table must lie in the catalog's root. If the folder was moved or copied, the table becomes a
    table of its own, as by `lancewal table moved`. Neither ingest nor flusher may have run while the folder was moved
    or copied. Kept cuts do not find a table that was moved: name each cut that holds the table by --cut.

    Example: lancewal catalog register shop.orders -t s3://lake/orders
    """
    from lancewal_core.catalog.opened import set_catalog
    from lancewal_tables.catalog.registration import register_table

    settings = asked.settings(name=name)
    done = register_table(set_catalog(settings), settings, name, cut or ())
    content = {
        **done.entry.model_dump(mode="json"),
        "moved_from": done.moved_from,
        "former_uuid": done.former_uuid,
        "changed": done.changed,
        "incomplete_cuts": done.lacking,
    }
    asked.report(content, _registered_text(done))


@app.command()
def forget(
    asked: SettingsAsked,
    name: NameArgument,
    cut: CutsOption = None,
) -> None:
    """Remove a table's entry from the catalog. The table stays, and `lancewal catalog register` adds it again.

    Example: lancewal catalog forget shop.orders
    """
    from lancewal_tables.catalog.registration import forget_table

    entry = forget_table(asked.settings_and_catalog()[1], name, cut or ())
    state = "The dropped table" if entry.state == "dropped" else "The table"
    lines = [f"forgot {name}. {state} stays at {one_line(entry.uri)}"]
    lines += [f"cut {one} still reads the table there, as {name}" for one in cut or ()]
    asked.report({"forgotten": name, "uri": entry.uri}, "\n".join(lines))


@app.command()
def check(
    asked: SettingsAsked,
    mend: Annotated[
        bool,
        typer.Option(
            "--mend",
            help="Add or correct an entry if the contract in its folder names this place, and this name or none.",
        ),
    ] = False,
) -> None:
    """Compare the catalog's entries and cuts with contracts and folders.

    The command finds a folder that is missing or was moved. It finds a contract with another uuid, topic or name than
    the entry, and a lancewal table in the root without an entry. It finds a kept cut that is missing in the catalog, or
    of which a table cannot be read. Exit code 1: at least one finding was not mended.

    Example: lancewal catalog check --mend
    """
    from lancewal_flusher.catalog.check import check_catalog

    settings, catalog = asked.settings_and_catalog()
    found = check_catalog(catalog, settings, mend=mend)
    asked.report(
        {"findings": [asdict(one) for one in found]}, "\n".join(map(_finding, found)) or "the catalog is right"
    )
    _end(asked, sum(not one.mended for one in found))


@app.command()
def rebuild(
    asked: SettingsAsked,
    root: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Folder of tables; repeatable. By default catalog.root."),
    ] = None,
) -> None:
    """Write entries and kept cuts into a catalog, from what the folders of the tables say. Use it for a catalog that
    was lost, or to change the kind of catalog.

    Contracts in the folders name the tables, and snapshots name the cuts. If a root is a catalog itself, its tables
    elsewhere are found too. Entries and cuts that exist are not changed. A cut of which a table cannot be read is not
    written. Exit code 1: an entry or cut could not be written, or the catalog has another one of that name.

    Example: lancewal catalog rebuild --root s3://lake
    """
    from lancewal_tables.catalog.rebuild import rebuild as rebuild_catalog

    settings, catalog = asked.settings_and_catalog()
    roots = root or [settings.catalog.root]
    if roots == [""]:
        raise InvalidInput("no root is given, and catalog.root is not set: name the folder of the tables by --root")
    done = rebuild_catalog(catalog, settings, roots)
    lines = [
        f"catalog {catalog.where}: wrote {counted(len(done.tables), 'table')} and {counted(len(done.cuts), 'cut')}",
        *map(one_line, done.findings),
    ]
    asked.report(asdict(done), "\n".join(lines))
    _end(asked, len(done.findings))


def _end(asked: SettingsAsked, findings: int) -> None:
    """End the command with exit code 1 if there are findings."""
    if not findings:
        return
    if asked.output is Output.TEXT:
        say(f"exit code 1: {counted(findings, 'finding')}", err=True)
    raise typer.Exit(1)


_TITLES = ("name", "state", "rows", "version", "lag", "address")


def _overview_text(lines: list[TableLine]) -> str:
    if not lines:
        return "no tables"
    rows = [
        (line.name, line.state, *map(figure, (line.rows, line.version, line.lag)), one_line(line.uri)) for line in lines
    ]
    errors = [f"{line.name}: {one_line(line.error)}" for line in lines if line.error is not None]
    return "\n".join([*aligned([_TITLES, *rows], figures=range(2, 5)), *([""] if errors else []), *errors])


def _said(entry: TableEntry) -> dict[str, str]:
    found = {
        "name": entry.name,
        "state": entry.state,
        "address": entry.uri,
        "table": entry.table_uuid or "-",
        "topic": entry.topic or "-",
        "group": entry.group_id or "-",
        "written": "-" if entry.table_uuid is None else utc_text(entry.changed_ms),
    }
    return {name: one_line(text) for name, text in found.items()}


def _registered_text(done: Registered) -> str:
    name, place = done.entry.name, one_line(done.entry.uri)
    first = (
        f"registered {name} at {place}" if done.changed else f"{name} at {place} was registered: nothing was changed"
    )
    lines = [first, *terms(_said(done.entry))]
    if done.moved_from is not None:
        lines.append(
            f"the folder was moved or copied from {one_line(done.moved_from)}: the table has got the new uuid "
            f"{done.entry.table_uuid}, and {done.former_uuid} stays that of a table there. Earlier receipts are no longer "
            "accepted, and named snapshots cannot be read here"
        )
    lines += [lacking_text(cut) for cut in done.lacking]
    return "\n".join(lines)


def _finding(one: CatalogFinding) -> str:
    mended = " (mended)" if one.mended else ""
    return f"{one.name}: {one.kind}{mended}: {one_line(one.text)}"
