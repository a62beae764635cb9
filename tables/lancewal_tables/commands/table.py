"""``lancewal table create|attach|moved|alter|show|drop|undrop|load|export-memwal``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import Asked, CutsOption, DryRunOption, TableAsked, YesOption, agree
from lancewal_core.cli.output import one_line, say
from lancewal_core.errors import InvalidInput, counted
from lancewal_core.process.clock import SystemClock, utc_text
from lancewal_tables.commands.contract_text import changes_text, contract_text, lacking_text, moved_names
from lancewal_tables.commands.load import command as load_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lancewal_core.settings.load import Settings
    from lancewal_core.table.columns.changes import Change
    from lancewal_core.table.contract import Contract
    from lancewal_tables.catalog.dropping import UndroppedTable
    from lancewal_tables.catalog.making import Make

NameOption = Annotated[
    str,
    typer.Option(
        "--name",
        help="Name of the table in the catalog. Without an address the table lies in the catalog's root.",
        metavar="NAME",
    ),
]
app = CommandApp(help="Create and change lancewal tables, load rows into them, and show their contracts.")


@app.command()
def create(
    asked: Asked,
    name: NameOption = "",
    dry_run: DryRunOption = False,
) -> None:
    """Create an empty table from the sections `table` and `kafka` of the settings.

    --name adds it to the catalog of the settings. If the command is interrupted, run it again.
    --dry-run makes the same checks, and shows the contract that would be written.

    Example: lancewal table create -c lancewal.yaml
    """
    from lancewal_tables.define.create import create_table

    settings = asked.settings(defining=True, name=name)
    _show(_made(create_table, settings, name, look_only=dry_run), asked, dry_run=dry_run)


@app.command()
def attach(
    asked: Asked,
    name: NameOption = "",
    dry_run: DryRunOption = False,
) -> None:
    """Make an existing Lance table a lancewal table. Its rows stay, and its primary key is checked.

    --name adds it to the catalog of the settings. If the command is interrupted, run it again.
    --dry-run makes the same checks, and shows the contract that would be written.

    Example: lancewal table attach -c lancewal.yaml
    """
    from lancewal_tables.define.attach import attach_table

    settings = asked.settings(defining=True, name=name)
    _show(_made(attach_table, settings, name, look_only=dry_run), asked, dry_run=dry_run)


@app.command()
def moved(
    asked: Asked,
    former: Annotated[str, typer.Option("--from", help="Place of the original, as `lancewal table show` prints it.")],
    cut: CutsOption = None,
) -> None:
    """Register a table whose folder was moved or copied to `table.uri`. It becomes a table of its own, with all content
    of the folder.

    Neither ingest nor flusher may have run on the table while it was copied.  Earlier receipts are no longer accepted.
    Kept cuts do not find a table that was moved: name each cut that holds the table by --cut.

    Example: lancewal table moved --from s3://old/orders
    """
    from lancewal_tables.catalog.cuts_of_table import check_move
    from lancewal_tables.define.move import move_table

    settings, catalog = asked.settings_and_catalog()
    lacking = check_move(settings, catalog, _contract(settings), cut or ())
    moved = move_table(settings, former)
    for name in lacking:
        _warn(lacking_text(name))
    _show(moved, asked)


@app.command()
def alter(
    asked: Asked,
    partitions: Annotated[int | None, typer.Option(help="The topic's new number of partitions.", min=1)] = None,
    topic_id: Annotated[
        str,
        typer.Option(
            help="Id of the topic that was deleted and made again, as named by the error that stopped ingest."
        ),
    ] = "",
    start: Annotated[
        str,
        typer.Option(
            help="With --topic-id, where reading begins in each partition: earliest (the default), latest, or a time such "
            "as 2026-01-31T00:00:00Z. For a topic restored from a backup, whose records the table has already, choose latest, "
            "while producers are stopped."
        ),
    ] = "",
    ttl: Annotated[
        str, typer.Option(help="Rows expire this long after the time in --ttl-column, such as 30d.", metavar="DURATION")
    ] = "",
    ttl_column: Annotated[str, typer.Option(help="Rows expire by the time in this column.")] = "",
    no_ttl: Annotated[bool, typer.Option("--no-ttl", help="Rows no longer expire.")] = False,
    history_window: Annotated[
        str, typer.Option(help="How long WAL entries stay after their merge, such as 2d.", metavar="DURATION")
    ] = "",
    version_window: Annotated[
        str,
        typer.Option(help="How long table versions stay once a newer one exists, such as 7d.", metavar="DURATION"),
    ] = "",
    subscription_hold: Annotated[
        str,
        typer.Option(
            help="How long a subscription may keep WAL entries and table versions that its consumer has not passed, such as "
            "7d.",
            metavar="DURATION",
        ),
    ] = "",
    on: Annotated[
        list[str] | None,
        typer.Option(
            help="Policy for records that cannot become rows: bad-record or misrouted, then = and stop, dead-letter or "
            "ignore. Likewise other-record, for records of another name than table.format.record. "
            "For the first records of a partition: wrong-format, then = and stop or dead-letter. For schemas that "
            "the registry does not know: unknown-schema, then = and stop or dead-letter. For a truncate at the source: "
            "truncate, then = and stop or ignore. For values that a connector left out: unavailable-value, then = and stop, "
            "dead-letter or ignore. For members without a column: unknown-column, then = and reject, "
            "ignore or add. May be repeated.",
            metavar="WHAT=POLICY",
        ),
    ] = None,
    dead_letter_topic: Annotated[str, typer.Option(help="Topic for dead letters; it must exist.")] = "",
    group: Annotated[
        str,
        typer.Option(
            help="The consumer group that takes the records from now on: kafka.group_id of its ingest. Ingest of the "
            "former group stops taking records and waits."
        ),
    ] = "",
    key_form: Annotated[
        str,
        typer.Option(
            help="Take record keys of one more schema, such as 7, or header-7 if a header names it. Only where keys keep "
            "their partitions under it.",
            metavar="SCHEMA",
        ),
    ] = "",
    format_value: Annotated[
        str,
        typer.Option(help="Format of record values, such as json. Only while the table has no row.", metavar="FORMAT"),
    ] = "",
    add_column: Annotated[
        list[str] | None,
        typer.Option(
            help="Add a column, or a member of a struct, with nulls in the rows that are there: 'note: string', "
            "'address.zip: int32'. In place of the type, a mapping as in table.columns. With a default, JSON that fills "
            "upserts without the column: 'note: string = \"none\"'. May be repeated, as all options about columns.",
            metavar="'NAME: TYPE'",
        ),
    ] = None,
    widen_column: Annotated[
        list[str] | None,
        typer.Option(
            help="Give a column or member a type that has all its values, such as 'fare: float64'. A flusher rewrites it.",
            metavar="'NAME: TYPE'",
        ),
    ] = None,
    rename_column: Annotated[
        list[str] | None,
        typer.Option(
            help="Rename a column or member: old=new, address.zip=postcode. Records may use both names.",
            metavar="OLD=NEW",
        ),
    ] = None,
    drop_column: Annotated[
        list[str] | None,
        typer.Option(
            help="Drop a column or member. Records may still have it: its value is passed over.",
            metavar="NAME",
        ),
    ] = None,
    forget_name: Annotated[
        list[str] | None,
        typer.Option(
            help="Stop accepting this former or dropped name. A record with it is a bad record; with unknown-column=ignore it "
            "loses the value.",
            metavar="NAME",
        ),
    ] = None,
    adopt_column: Annotated[
        list[str] | None,
        typer.Option(
            help="Take into the contract what another program has done to a column: a nullable column that it has added, "
            "renamed or dropped. '*' for all.",
            metavar="NAME",
        ),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Change the table's contract. Change its columns, when rows expire, how long data is kept, or what becomes of
    records that are not rows. Or, once all records are merged, add new partitions of the topic, or name a topic that
    was deleted and recreated.

    Running services follow some changes without a restart: columns, policies (`--on`, `--dead-letter-topic`), the
    format of values (`--format-value`), schemas of keys (`--key-form`), the consumer group (`--group`). After any other
    change restart ingest and flusher.  --dry-run makes the same checks, and shows the terms before and after.  With `-o
    json` it shows both contracts, as `before` and `after`.

    Example: lancewal table alter --on misrouted=dead-letter
    """
    from lancewal_tables.commands.alter_terms import altered_terms, start_of
    from lancewal_tables.define.alter import alter_partitions, alter_terms, rebind_topic
    from lancewal_tables.define.column_changes import alter_columns, changes_of_columns
    from lancewal_tables.define.value_format import alter_value_format

    given = {
        "--history-window": history_window,
        "--version-window": version_window,
        "--subscription-hold": subscription_hold,
        "--dead-letter-topic": dead_letter_topic,
        "--group": group,
        "--key-form": key_form,
    }
    terms = altered_terms(ttl, ttl_column, no_ttl, on or [], given)
    columns = changes_of_columns(rename_column, widen_column, add_column, drop_column, forget_name, adopt_column)
    asked_for = [partitions is not None, bool(topic_id), bool(format_value), bool(terms), bool(columns)]
    if sum(asked_for) != 1 or (start and not topic_id):
        raise InvalidInput(
            "name one change: --partitions N. Or --topic-id ID, and with it --start. Or --format-value FORMAT. Or any of "
            "--add-column, --widen-column, --rename-column, --drop-column, --forget-name, --adopt-column. Or any of "
            "--ttl DURATION with --ttl-column COLUMN, --no-ttl, --history-window DURATION, --version-window DURATION, "
            "--subscription-hold DURATION, --on WHAT=POLICY, --dead-letter-topic TOPIC, --group GROUP, --key-form SCHEMA"
        )
    settings = asked.settings()
    before = _contract(settings) if dry_run or columns else None
    if partitions is not None:
        after = alter_partitions(settings, partitions, look_only=dry_run)
    elif topic_id:
        after = rebind_topic(settings, topic_id, start=start_of(start), look_only=dry_run)
    elif format_value:
        after = alter_value_format(settings, format_value, look_only=dry_run)
    elif columns:
        after = alter_columns(settings, columns, look_only=dry_run)
    else:
        after = alter_terms(settings, terms, warn=_warn, look_only=dry_run)
    if before is not None and columns:
        _tell_of_columns(before, after, columns)
    if before is None or not dry_run:
        _show(after, asked)
    else:
        both = {"before": before.model_dump(mode="json"), "after": after.model_dump(mode="json")}
        asked.report(both, changes_text(before, after), dry_run=True)


@app.command()
def show(asked: Asked) -> None:
    """Show the table's contract.

    Example: lancewal table show -t s3://lake/orders
    """
    _show(_contract(asked.settings()), asked)


@app.command()
def drop(
    asked: Asked,
    now: Annotated[
        bool, typer.Option("--now", help="Delete the table's objects at once, without the grace period.")
    ] = False,
    cut: CutsOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Drop the table. Its services end with an error within 10 s. `lancewal table undrop` restores the table.

    Nothing is deleted at first. Once the grace period of the contract is over, run the command again: it asks, and
    deletes the table's objects. The contracts stay, and say that the table was dropped.

    Example: lancewal table drop -t s3://lake/orders
    """
    from lancewal_tables.catalog.cuts_of_table import check_kept_cuts
    from lancewal_tables.catalog.dropping import contract_of, delete_table, drop_table
    from lancewal_tables.define.drop import deletable_ms

    settings, catalog = asked.settings_and_catalog()
    uri, contract = settings.table.uri, contract_of(settings)
    where, new = _called(settings, contract), contract.drop is None
    check_kept_cuts(settings, catalog, contract, cut or [])
    due = now or (contract.drop is not None and SystemClock().now_ms() >= deletable_ms(contract))
    due = due or (contract.drop is not None and contract.drop.deleting)
    if dry_run:
        _report_drop(
            contract, asked, f"{uri}: would be dropped{', and its objects deleted' if due else ''}", dry_run=True
        )
        return
    if due:
        agree(yes, f"all objects of the table at {uri} are deleted")
    if contract.drop is None or not contract.drop.deleting:
        dropped = drop_table(settings, catalog, contract)
        contract = dropped.contract
        for region, error in dropped.not_ended.items():
            _warn(f"the log of partition {region.name} could not be ended: {error}. Run the command again")
        if dropped.entry_error is not None:
            _warn(f"the table is dropped, and the catalog still names it: {dropped.entry_error}")
    if not due:
        assert contract.drop is not None
        since, ends = utc_text(contract.drop.since_ms), utc_text(deletable_ms(contract))
        did = (
            f"dropped {where}: ingest and flusher end within 10 s" if new else f"{where} was dropped at {since} already"
        )
        text = f"{did}. Nothing is deleted\nundrop: possible; from {ends} on, run this command again to delete it"
        _report_drop(contract, asked, text)
        return
    contract, number = delete_table(settings, contract)
    stay = "The contracts stay, and say that the table was dropped"
    _report_drop(contract, asked, f"deleted {counted(number, 'object')} of {where}. {stay}", number)


@app.command()
def undrop(asked: Asked) -> None:
    """Bring a dropped table back into use, unless its objects are being deleted. Start its services afterwards.

    Nothing that was durable is lost. Ingest consumes the records that were produced meanwhile, as far as Kafka still
    has them.

    Example: lancewal table undrop -t s3://lake/orders
    """
    from lancewal_tables.catalog.dropping import undrop_table

    settings, catalog = asked.settings_and_catalog()
    undropped = undrop_table(settings, catalog)
    if undropped.name_is_at is not None:
        _warn(
            f"the name {undropped.contract.name} leads to the table at {undropped.name_is_at} by now. Give this one another "
            f"name: `lancewal catalog register NAME -t {settings.table.uri}`"
        )
    content = undropped.contract.model_dump(mode="json")
    asked.report({**content, "undropped": undropped.since_ms is not None}, _undropped_text(settings, undropped))


def _undropped_text(settings: Settings, undropped: UndroppedTable) -> str:
    where, since_ms = _called(settings, undropped.contract), undropped.since_ms
    if since_ms is None:
        return f"{where} was not dropped: nothing was changed"
    return (
        f"undropped {where}: the table was dropped at {utc_text(since_ms)}, and is in use again with all that was durable. "
        "Start ingest and flusher again"
    )


def _called(settings: Settings, contract: Contract) -> str:
    """Return a text with the table's name, if it has one, and its address."""
    uri = one_line(settings.table.uri)
    return uri if contract.name is None else f"{contract.name} at {uri}"


app.command("load")(load_command)


@app.command("export-memwal")
def export_memwal(
    asked: TableAsked,
    file: Annotated[Path, typer.Argument(help="File to write; an existing file is replaced.", metavar="FILE")],
) -> None:
    """Write all generations of all partitions, history pages included, as one `MemWalIndexDetails` message of Lance's MemWAL
    index specification, for programs that read it.  The table is only read.  Needs `table.uri`.

    Example: lancewal table export-memwal memwal.binpb
    """
    from lancewal_flusher.open import open_context
    from lancewal_tables.status.memwal_export import export_memwal

    settings = asked.settings()
    with open_context(settings, on_threads=True) as context:
        details = export_memwal(context)
    try:
        file.write_bytes(details)
    except OSError as error:
        raise InvalidInput(f"cannot write {file}: {error.strerror}") from error


def _made(make: Make, settings: Settings, name: str, *, look_only: bool) -> Contract:
    if not name:
        return make(settings, warn=_warn, look_only=look_only, name=None)
    from lancewal_tables.catalog.making import make_named

    return make_named(make, settings, name, _warn, look_only=look_only)


def _contract(settings: Settings) -> Contract:
    from lancewal_core.open import Address

    return Address.of(settings).contract()


def _report_drop(contract: Contract, asked: Asked, text: str, number: int = 0, *, dry_run: bool = False) -> None:
    """Report a drop.  ``number``: number of objects that were deleted."""
    said = {
        "table_uuid": contract.table_uuid,
        "version": contract.version,
        "drop": None if contract.drop is None else contract.drop.model_dump(),
        "deleted": number,
    }
    asked.report(said, text, dry_run=dry_run)


def _tell_of_columns(before: Contract, after: Contract, changes: Sequence[Change]) -> None:
    """Print to stderr that there was nothing to do, and a warning for each name that stands for another field now."""
    from lancewal_core.table.columns.changes import Adopted

    if after.version == before.version:
        if all(isinstance(change, Adopted) and not change.path for change in changes):
            say(
                "nothing to adopt: the table has the columns of the contract, and no others. Nothing was changed",
                err=True,
            )
        else:
            say(
                f"nothing to do: version {after.version} of the contract has all of this. Nothing was changed", err=True
            )
    moved = moved_names(before, after)
    for text in moved:
        _warn(text)
    if moved:
        _warn("ingest takes this up within 10 s. Let producers use these names in their new sense only then")


def _warn(text: str) -> None:
    say(f"warning: {one_line(text)}", err=True)


def _show(contract: Contract, asked: Asked, *, dry_run: bool = False) -> None:
    """Report a contract.  ``dry_run``: the contract is not stored, so its table uuid and field ids are left out."""
    said = contract.model_dump(mode="json")
    if dry_run:
        del said["table_uuid"], said["making"]
        for column in said["columns"]:
            del column["field_ids"]
    asked.report(said, contract_text(contract, made=not dry_run), dry_run=dry_run)
