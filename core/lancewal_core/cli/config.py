"""``lancewal config check|show``."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import ConfigOption, Output, OutputOption, read_settings
from lancewal_core.cli.output import one_line, say, say_json

if TYPE_CHECKING:
    from lancewal_core.settings.load import Settings

_TOPIC = EntryPoint("topic", "lancewal_ingest.commands.topic_sample:newest_records", "lancewal.config_check")
"""Function of another part that says what a topic's newest records are, if that part is installed."""
app = CommandApp(help="Check and show the settings.")


@app.command()
def check(config: ConfigOption = None) -> None:
    """Read all settings and report everything that is wrong with them, as far as that needs neither store nor Kafka.

    If the settings name a topic and brokers, and the extra `ingest` is installed, the topic's newest ten records are read
    too. The command says which of them would be rows, and which are of another format. The settings stay valid whatever
    the topic holds, and if no broker answers.

    Example: lancewal config check -c lancewal.yaml
    """
    from lancewal_core.errors import InvalidSettings
    from lancewal_core.settings.declared import check_declared

    settings = read_settings(config)
    if not any(settings.model_dump(exclude_unset=True).values()):
        raise InvalidSettings(f"there are no settings. {settings.looked_for}")
    check_declared(settings.table)
    say("The settings are valid.")
    about_topic = _newest_records(settings)
    if about_topic:
        say("\n".join(one_line(line) for line in about_topic.split("\n")))


def _newest_records(settings: Settings) -> str:
    try:
        found: str = _TOPIC.load()(settings)
    except ImportError:
        return ""
    return found


@app.command()
def show(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show the settings in force, defaults included, secrets masked.

    Example: lancewal config show -c lancewal.yaml
    """
    masked = read_settings(config).masked()
    if output is Output.JSON:
        say_json(masked)
        return
    import yaml

    say(yaml.safe_dump(masked, sort_keys=False, allow_unicode=True, default_flow_style=False).rstrip("\n"))
