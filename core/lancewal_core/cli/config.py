"""``lancewal config check|show``."""

from __future__ import annotations

from lancewal_core.cli.groups import CommandApp
from lancewal_core.cli.options import ConfigOption, Output, OutputOption, read_settings
from lancewal_core.cli.output import say, say_json

app = CommandApp(help="Check and show the settings.")


@app.command()
def check(config: ConfigOption = None) -> None:
    """Read all settings and report everything that is wrong with them, as far as that needs neither store nor Kafka.

    Example: lancewal config check -c lancewal.yaml
    """
    from lancewal_core.errors import InvalidSettings
    from lancewal_core.settings.declared import check_declared

    settings = read_settings(config)
    if not any(settings.model_dump(exclude_unset=True).values()):
        raise InvalidSettings(f"there are no settings. {settings.looked_for}")
    check_declared(settings.table)
    say("The settings are valid.")


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
