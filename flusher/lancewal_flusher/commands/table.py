"""``lancewal table create|attach|moved|alter|rebind|show|load|export-memwal``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.groups import Group
from lancewal_core.cli.options import ConfigOption, Output, OutputOption, StorageOption, TableOption, read_settings
from lancewal_core.cli.output import aligned, one_line, say, say_json
from lancewal_core.errors import InvalidInput
from lancewal_flusher.commands.load import command as load_command

if TYPE_CHECKING:
    from lancewal_core.table.contract import Contract

app = Group(help="Make lancewal tables, and show what a table is.")


@app.command()
def create(
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Create an empty table from `table` and `kafka` of the settings.

    Example: lancewal table create -c lancewal.yaml
    """
    from lancewal_flusher.define.create import create_table

    _show(create_table(read_settings(config, table, storage_option, defining=True), warn=_warn), output)


@app.command()
def attach(
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Make an existing Lance table a lancewal table; its rows stay, its primary key is checked.

    Example: lancewal table attach -c lancewal.yaml
    """
    from lancewal_flusher.define.attach import attach_table

    _show(attach_table(read_settings(config, table, storage_option, defining=True), warn=_warn), output)


@app.command()
def moved(
    former: Annotated[str, typer.Option("--from", help="Place of the original, as `lancewal table show` tells it.")],
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Take up a table whose folder was moved or copied to `table.uri`, as a table of its own, with all that the folder holds.

    Neither ingest nor flusher may have worked on it while it was copied.  Receipts of before are not taken any more.

    Example: lancewal table moved --from s3://old/orders
    """
    from lancewal_flusher.define.move import move_table

    _show(move_table(read_settings(config, table, storage_option), former), output)


@app.command()
def alter(
    partitions: Annotated[int | None, typer.Option(help="The topic's new number of partitions.", min=1)] = None,
    ttl_column: Annotated[str, typer.Option(help="Rows expire by the time in this column.")] = "",
    ttl_s: Annotated[int | None, typer.Option(help="Rows expire so many seconds after it.", min=1)] = None,
    no_ttl: Annotated[bool, typer.Option("--no-ttl", help="Rows expire no more.")] = False,
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Take up partitions that were added to the topic, once producers are stopped and all is merged; or change when rows
    expire.

    Restart ingest and flusher afterwards.

    Example: lancewal table alter --partitions 12
    """
    from lancewal_core.rows.ttl import Ttl
    from lancewal_flusher.define.alter import alter_partitions, alter_ttl

    ttl = Ttl(ttl_column, ttl_s) if ttl_column and ttl_s is not None else None
    if sum([partitions is not None, ttl is not None, no_ttl]) != 1 or (ttl is None and (ttl_column or ttl_s)):
        raise InvalidInput("name one change: --partitions N, --ttl-column COLUMN with --ttl-s SECONDS, or --no-ttl")
    if partitions is not None:
        _show(alter_partitions(read_settings(config, table, storage_option), partitions), output)
    else:
        _show(alter_ttl(read_settings(config, table, storage_option), ttl), output)


@app.command()
def rebind(
    topic_id: Annotated[str, typer.Option(help="Id of the new topic, as the stop of ingest names it.")],
    start: Annotated[
        str,
        typer.Option(
            help="Where each partition of it begins: earliest, latest, or a time such as 2026-01-31T00:00:00Z. Of a topic "
            "restored from a backup the table has the records already: latest, while producers are stopped."
        ),
    ] = "earliest",
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Take up a topic that was deleted and made again under its name, once all of the old one is merged.

    Restart ingest and flusher afterwards.

    Example: lancewal table rebind --topic-id yK2mXcVnQzO0bW1a5c3d4e --start latest
    """
    from pydantic import TypeAdapter, ValidationError

    from lancewal_core.errors import InvalidSettings
    from lancewal_core.settings.sections import Start
    from lancewal_flusher.define.alter import rebind_topic

    try:
        parsed = TypeAdapter[Start](Start).validate_python(start)
    except ValidationError as error:
        raise InvalidSettings(f"--start {start!r}: {error.errors()[0]['msg']}") from error
    _show(rebind_topic(read_settings(config, table, storage_option), topic_id, start=parsed), output)


@app.command()
def show(
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the table's contract.

    Example: lancewal table show -t s3://lake/orders
    """
    from lancewal_core.open import Address

    settings = read_settings(config, table, storage_option)
    settings.need("table.uri")
    _show(Address.of(settings).contract(), output)


app.command("load")(load_command)


@app.command("export-memwal")
def export_memwal(
    file: Annotated[Path, typer.Argument(help="Where to write it; replaced if it is there.", metavar="FILE")],
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
) -> None:
    """Write all generations of all regions, history pages included, as one `MemWalIndexDetails` of Lance's MemWAL index
    specification, for programs that know it.  Only reads the table.  Needs `table.uri`.

    Example: lancewal table export-memwal memwal.binpb
    """
    from contextlib import ExitStack

    from lancewal_flusher.open import open_context
    from lancewal_flusher.status.memwal_export import export_memwal

    settings = read_settings(config, table, storage_option)
    with ExitStack() as stack:
        details = export_memwal(open_context(settings, stack, on_threads=True))
    try:
        file.write_bytes(details)
    except OSError as error:
        raise InvalidInput(f"cannot write {file}: {error.strerror}") from error


def _warn(text: str) -> None:
    say(f"warning: {one_line(text)}", err=True)


def _show(contract: Contract, output: Output) -> None:
    match output:
        case Output.JSON:
            say_json(contract.model_dump(mode="json"))
        case Output.TEXT:
            say(contract_text(contract))


def contract_text(contract: Contract) -> str:
    """The contract for people: one line for each term, then the columns."""
    starts = ", ".join("earliest" if position < 0 else str(position) for position in contract.start)
    if len(set(contract.start)) == 1:
        starts = "earliest" if contract.start[0] < 0 else str(contract.start[0])
    said = {
        "contract": f"version {contract.version}, table {contract.table_uuid}",
        "place": contract.place or "not known",
        "topic": f"{contract.topic} ({contract.topic_id}), {contract.partitions} partitions",
        "primary key": ", ".join(contract.primary_key),
        "region key": ", ".join(contract.region_key) or "the bytes of the record key",
        "start": starts,
        "values": f"{contract.value_format}, at most {contract.record_bytes_max} bytes, "
        + ("patches allowed" if contract.patches else "no patches"),
        "history window": f"{contract.history_window_s} s",
        "freshness target": f"{contract.freshness_target_s:g} s",
        "rows expire": "never" if contract.ttl is None else f"{contract.ttl.seconds} s after {contract.ttl.column}",
    }
    columns = {one_line(column.name): one_line(column.type) for column in contract.columns}
    lines = aligned([(name, one_line(text)) for name, text in said.items()] + list(columns.items()))
    return "\n".join([*lines[: len(said)], "", *lines[len(said) :]])
