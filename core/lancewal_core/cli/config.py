"""``lancewal config init|check|show``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import ConfigOption, Output, OutputOption, read_settings
from lancewal_core.cli.output import one_line, say, say_json

if TYPE_CHECKING:
    from lancewal_core.settings.load import Settings

_CHECKS = "lancewal.config_check"
"""Group of entry points: functions of other parts that check valid settings further, and say what they find."""
_PROPOSALS = "lancewal.config_init"
"""Group of the entry point of the function that proposes settings."""
app = CommandApp(help="Propose, check and show the settings.")


@app.command()
def init(
    from_subject: Annotated[
        str, typer.Option(help="Subject of the registry (registry.url) whose newest schema is taken.", metavar="NAME")
    ] = "",
    from_schema: Annotated[
        Path | None,
        typer.Option(
            help="File with a schema of Avro (.avsc), Protobuf (.proto), JSON Schema or Kafka Connect.", metavar="FILE"
        ),
    ] = None,
    from_debezium: Annotated[
        str,
        typer.Option(
            help="Topic of a Debezium connector (kafka.bootstrap_servers) whose newest records are read. With --to, `*` in it "
            "stands for any text.",
            metavar="TOPIC",
        ),
    ] = "",
    to: Annotated[
        Path | None,
        typer.Option(
            help="Folder for a file TOPIC.yaml of each topic that matches --from-debezium. No file is overwritten.",
            metavar="FOLDER",
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Propose settings for the table of a topic, from the schema of its values or from its newest records.

    The text is a settings file with the columns. Keys come from the key's subject, or from the record keys. What the schema
    or the records do not say stands as a comment. Nothing is written without --to: `> lancewal.yaml` makes a file of it.

    Example: lancewal config init --from-subject orders-value
    """
    from lancewal_core.errors import InvalidInput, InvalidSettings

    if [bool(from_subject), from_schema is not None, bool(from_debezium)].count(True) != 1:
        raise InvalidInput("give one source: --from-subject NAME, --from-schema FILE, or --from-debezium TOPIC")
    if to is None and "*" in from_debezium:
        raise InvalidInput(
            "--from-debezium with * may match several topics: name a folder for their files by --to FOLDER"
        )
    if to is not None and not from_debezium:
        raise InvalidInput("--to goes with --from-debezium")
    settings = read_settings(config, find="none")
    try:
        (propose,) = (entry.load() for entry in entry_points(group=_PROPOSALS))
    except (ImportError, ValueError):
        raise InvalidSettings("config init needs the extra ingest: pip install 'lancewal[ingest]'") from None
    say(propose(settings, from_subject, from_schema, from_debezium, to))


@app.command()
def check(config: ConfigOption = None) -> None:
    """Read all settings and report everything that is wrong with them, as far as that needs neither store nor Kafka.

    If the settings name a topic and brokers, and the extra `ingest` is installed, the topic's newest ten records are read
    too. If the table is there, its contract decides about them, and not the settings. The command says which would be rows,
    which are of another format, and whether their keys tell another partitioner. With `table.format.envelope` it names
    settings of the connector that are missing or harmful. If it could compare no record, it says so. The settings stay
    valid whatever the topic holds, and if no broker answers.

    Example: lancewal config check -c lancewal.yaml
    """
    from lancewal_core.errors import InvalidSettings
    from lancewal_core.settings.declared import check_declared

    settings = read_settings(config, find="none")
    if not any(settings.model_dump(exclude_unset=True).values()):
        raise InvalidSettings(f"there are no settings. {settings.looked_for}")
    check_declared(settings.table)
    say("The settings are valid.")
    for found in _more(settings):
        say("\n".join(one_line(line) for line in found.split("\n")))


def _more(settings: Settings) -> Iterator[str]:
    """Yield what functions of other parts say about valid settings.  A part whose extra is not installed says
    nothing."""
    for entry in entry_points(group=_CHECKS):
        with suppress(ImportError):
            if found := entry.load()(settings):
                yield found


@app.command()
def show(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show the settings in force, defaults included, secrets masked.

    Example: lancewal config show -c lancewal.yaml
    """
    masked = read_settings(config, find="none").masked()
    if output is Output.JSON:
        say_json(masked)
        return
    import yaml

    say(yaml.safe_dump(masked, sort_keys=False, allow_unicode=True, default_flow_style=False).rstrip("\n"))
