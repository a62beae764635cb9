"""``lancewal config check|show``."""

from __future__ import annotations

import typer

from lancewal_core.cli.options import ConfigOption, Output, OutputOption, read_settings
from lancewal_core.cli.output import say, say_json

app = typer.Typer(no_args_is_help=True, help="Check and show the settings.")


@app.command()
def check(config: ConfigOption = None) -> None:
    """Read all settings and report everything that is wrong with them."""
    read_settings(config)
    say("The settings are valid.")


@app.command()
def show(config: ConfigOption = None, output: OutputOption = Output.TEXT) -> None:
    """Show the settings in force, defaults included, secrets masked."""
    masked = read_settings(config).masked()
    if output is Output.JSON:
        say_json(masked)
        return
    import yaml

    say(yaml.safe_dump(masked, sort_keys=False, allow_unicode=True, default_flow_style=False).rstrip("\n"))
