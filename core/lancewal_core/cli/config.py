"""``lancewal config check|show``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import ConfigOption, Output, OutputOption, read_settings
from lancewal_core.cli.output import one_line, say, say_json

if TYPE_CHECKING:
    from lancewal_core.settings.load import Settings

_CHECKS = "lancewal.config_check"
"""Group of entry points: functions of other parts that say more about valid settings."""
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

    settings = read_settings(config, find="none")
    if not any(settings.model_dump(exclude_unset=True).values()):
        raise InvalidSettings(f"there are no settings. {settings.looked_for}")
    check_declared(settings.table)
    say("The settings are valid.")
    for found in _more(settings):
        say("\n".join(one_line(line) for line in found.split("\n")))


def _more(settings: Settings) -> Iterator[str]:
    """Yield what other parts say about valid settings.  A part whose extra is not installed says nothing."""
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
