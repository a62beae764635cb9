"""``lancewal table create|attach|moved|alter|show|load|export-memwal``."""

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
    topic_id: Annotated[
        str,
        typer.Option(
            help="Id of the topic that was made again under the table's name, as the stop of ingest names it."
        ),
    ] = "",
    start: Annotated[
        str,
        typer.Option(
            help="With --topic-id, where each partition begins: earliest (the default), latest, or a time such as "
            "2026-01-31T00:00:00Z. Of a topic restored from a backup the table has the records already: latest, while "
            "producers are stopped."
        ),
    ] = "",
    ttl: Annotated[
        str, typer.Option(help="Rows expire so long after the time in --ttl-column, such as 30d.", metavar="DURATION")
    ] = "",
    ttl_column: Annotated[str, typer.Option(help="Rows expire by the time in this column.")] = "",
    no_ttl: Annotated[bool, typer.Option("--no-ttl", help="Rows expire no more.")] = False,
    history_window: Annotated[
        str, typer.Option(help="How long WAL entries stay after their merge, such as 2d.", metavar="DURATION")
    ] = "",
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            help="What becomes of records that are no rows: bad-record or misrouted, then stop, dead-letter or ignore. "
            "Repeatable.",
            metavar="WHAT=POLICY",
        ),
    ] = None,
    dead_letter_topic: Annotated[str, typer.Option(help="Where dead letters go; it must exist.")] = "",
    table: TableOption = "",
    config: ConfigOption = None,
    storage_option: StorageOption = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Change the table's contract: take up partitions that were added to the topic, or a topic that was made again, once all
    is merged; or change when rows expire, what is kept, and what becomes of records that are no rows.

    Restart ingest and flusher afterwards.  Policies (`--on`, `--dead-letter-topic`) running services take up by themselves.

    Example: lancewal table alter --on misrouted=dead-letter
    """
    from lancewal_flusher.commands.alter_terms import altered_terms, start_of
    from lancewal_flusher.define.alter import alter_partitions, alter_terms, rebind_topic

    terms = altered_terms(ttl, ttl_column, no_ttl, history_window, on or [], dead_letter_topic)
    if sum([partitions is not None, bool(topic_id), bool(terms)]) != 1 or (start and not topic_id):
        raise InvalidInput(
            "name one change: --partitions N; or --topic-id ID, and with it --start; or any of --ttl DURATION with "
            "--ttl-column COLUMN, --no-ttl, --history-window DURATION, --on WHAT=POLICY, --dead-letter-topic TOPIC"
        )
    settings = read_settings(config, table, storage_option)
    if partitions is not None:
        _show(alter_partitions(settings, partitions), output)
    elif topic_id:
        _show(rebind_topic(settings, topic_id, start=start_of(start)), output)
    else:
        _show(alter_terms(settings, terms), output)


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
    """Write all generations of all partitions, history pages included, as one `MemWalIndexDetails` of Lance's MemWAL index
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
        "bad records": contract.on_bad_record,
        "misrouted": contract.on_misrouted,
        "dead letters": contract.dead_letters,
        "history window": f"{contract.history_window_s} s",
        "freshness target": f"{contract.freshness_target_s:g} s",
        "rows expire": "never" if contract.ttl is None else f"{contract.ttl.seconds} s after {contract.ttl.column}",
    }
    columns = {one_line(column.name): one_line(column.type) for column in contract.columns}
    lines = aligned([(name, one_line(text)) for name, text in said.items()] + list(columns.items()))
    return "\n".join([*lines[: len(said)], "", *lines[len(said) :]])
