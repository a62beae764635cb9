"""The program ``lancewal``: one command line, to which each installed package brings its own commands.

1. Commands come from the core's own list and from the entry points of the group ``lancewal.commands``: a ``typer.Typer``
   is a group (or one command, if it has only one), a plain function a command.  A package is loaded when its command is
   named or listed, never before, so one command starts fast and is not broken by another.
2. A command whose extra is not installed is not listed; naming it says what to install.
3. An error that lancewal raises on purpose is one line ``lancewal: <kind>: <message>`` on stderr, and its branch says the
   exit code (``errors``).  Every other exception shows its traceback, and the exit code is 5.
4. Logs go to stderr: JSON lines, or lines for people on a terminal.  Lines of lancewal have the name of a declared
   ``event``.  stdout is the command's result.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Annotated, Any

import typer

from lancewal_core.cli.groups import CommandGroup, command_of
from lancewal_core.cli.logs import LogFormat, LogLevel, configure_logging
from lancewal_core.cli.output import one_line, say
from lancewal_core.cli.unused_imports import without_pandas
from lancewal_core.errors import BUG, ActionNeeded, InvalidSettings, LancewalError
from lancewal_core.process import failpoints
from lancewal_core.process.library_errors import without_secrets
from lancewal_core.process.stop_signals import end_process

GROUP = "lancewal.commands"
_DISTRIBUTION = "lancewal"
_CORE = {
    "config": "lancewal_core.cli.config:app",
    "estimate": "lancewal_core.cli.estimate.command:command",
    "inspect": "lancewal_core.cli.inspect:command",
    "pause": "lancewal_core.cli.pause:pause",
    "resume": "lancewal_core.cli.pause:resume",
    "store": "lancewal_core.cli.store:app",
}
"""Commands that every installation has."""
_EXTRAS = {"tables": "flusher"}
"""Package -> extra, where their names differ."""
_REQUIREMENT = re.compile(r"^\s*(?P<name>[A-Za-z0-9._-]+)[^;]*;.*\bextra\s*==\s*['\"](?P<extra>[^'\"]+)['\"]")


class ExtraMissing(ActionNeeded):
    """The package of a command is installed, but a library that it needs is not."""


def extra_of(entry: EntryPoint) -> str:
    """Return the extra that a command belongs to: ``ingest`` for ``lancewal_ingest.commands.ingest:app``."""
    package = entry.value.partition(".")[0].partition(":")[0].removeprefix("lancewal_")
    return _EXTRAS.get(package, package)


def missing_requirements(entry: EntryPoint) -> list[str]:
    """Return the names of the distributions that the command's extra needs and that are not installed."""
    requirements = entry.dist.requires if entry.dist is not None else None
    missing = []
    for requirement in requirements or []:
        match = _REQUIREMENT.match(requirement)
        if match is None or match["extra"] != extra_of(entry):
            continue
        try:
            metadata.distribution(match["name"])
        except metadata.PackageNotFoundError:
            missing.append(match["name"])
    return missing


class _Commands(CommandGroup):
    """The root group: built-in commands, and those of the entry points (guarantees 1 and 2)."""

    def list_commands(self, ctx: Any) -> list[str]:
        found = set(super().list_commands(ctx))
        for entry in _entries():
            if missing_requirements(entry):
                continue
            try:
                _load(entry)
            except ImportError as error:
                say(f"lancewal: the command {entry.name!r} cannot be loaded: {error}", err=True)
                continue
            found.add(entry.name)
        return sorted(found)

    def names(self, ctx: Any) -> Sequence[str]:
        return [entry.name for entry in _entries() if not missing_requirements(entry)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        built_in = super().get_command(ctx, cmd_name)
        if built_in is not None:
            return built_in
        entry = next((entry for entry in _entries() if entry.name == cmd_name), None)
        return None if entry is None else _load(entry)


def _entries() -> Sequence[EntryPoint]:
    core = [EntryPoint(name, value, GROUP) for name, value in _CORE.items()]
    return (*core, *metadata.entry_points(group=GROUP))


def _load(entry: EntryPoint) -> Any:
    missing = missing_requirements(entry)
    extra = extra_of(entry)
    if missing:
        raise ExtraMissing(
            f"the command {entry.name!r} needs {', '.join(missing)}: install {_DISTRIBUTION}[{extra}]", extra=extra
        )
    loaded = entry.load()
    group = isinstance(loaded, typer.Typer)
    command: Any = typer.main.get_command(loaded) if group else command_of(entry.name, loaded)
    command.name = entry.name
    return command


app = typer.Typer(
    name="lancewal",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Fast, exact upserts from Kafka into Lance tables.",
)


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        typer.echo(f"{_DISTRIBUTION} {metadata.version(_DISTRIBUTION)}")
    except metadata.PackageNotFoundError:
        typer.echo(f"{_DISTRIBUTION} (not installed: run from its source)")
    raise typer.Exit()


@app.callback()
def _root(
    log_level: Annotated[
        LogLevel, typer.Option(help="Lowest severity of the events that are logged, on stderr.")
    ] = LogLevel.INFO,
    log_format: Annotated[
        LogFormat, typer.Option(help="Format of the log; auto: text on a terminal, JSON lines otherwise.")
    ] = LogFormat.AUTO,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and stop.")
    ] = False,
) -> None:
    configure_logging(log_level, log_format)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return the exit code (guarantee 3)."""
    try:
        failpoints.configure(os.environ)
        typer.main.get_command(app)(list(arguments), prog_name="lancewal")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except LancewalError as error:
        # Of settings there is a line for each problem; in others a line break is in somebody's name or text.
        text = str(error) if isinstance(error, InvalidSettings) else one_line(str(error))
        say(f"lancewal: {error.kind}: {text}", err=True)
        return error.exit_code
    except KeyboardInterrupt:
        raise
    except BaseException:  # also a panic of a library in Rust, which is no Exception
        say(without_secrets(traceback.format_exc()).rstrip(), err=True)
        return BUG
    return 0


def main() -> None:
    """Run the console script ``lancewal``, and end the process with its exit code."""
    without_pandas()
    end_process(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
