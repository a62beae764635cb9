"""Options that commands share, and how a command gets its settings.  Each shared option has its name, meaning and help
here.

A command is about one table, and takes ``-t``, ``-c`` and ``--storage-option``.  It prints its report in the form of
``-o``.  ``--dry-run`` and ``--yes`` mean the same in every command.

A command that has a parameter ``asked: TableAsked`` takes the first three.  One that has ``asked: Asked`` takes all
four.  They come after its other options (``groups.with_options``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from lancewal_core.cli.groups import Options
from lancewal_core.cli.output import many_lines, say, say_json
from lancewal_core.errors import InvalidInput

if TYPE_CHECKING:
    from lancewal_core.catalog.catalog import StoredCatalog
    from lancewal_core.settings.load import Settings
    from lancewal_core.settings.sections import TableSettings

TABLE_HELP = "The table's address (a path, or s3:// and the like), or its name in the catalog. By default table.uri."
TableOption: TypeAlias = Annotated[str, typer.Option("--table", "-t", help=TABLE_HELP, metavar="ADDRESS")]
ConfigOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Settings file (YAML); by default what LANCEWAL_CONFIG names.", metavar="FILE"),
]
StorageOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        help="A storage option of Lance, over those of the settings; repeatable.",
        metavar="NAME=VALUE",
    ),
]
DryRunOption: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
]
Find: TypeAlias = Literal["none", "active"]
NOTHING_CHANGED = "nothing was changed (--dry-run)"
"""Last words of the report of a ``--dry-run``."""
YesOption: TypeAlias = Annotated[
    bool, typer.Option("--yes", help="Do not ask for confirmation. The loss cannot be undone.")
]


CutsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--cut", help="Name of a kept cut that may lose the table; repeatable.", metavar="NAME"),
]


class Output(StrEnum):
    """Form of a command's report."""

    TEXT = "text"
    JSON = "json"


OutputOption: TypeAlias = Annotated[Output, typer.Option("--output", "-o", help="Format of the output.")]


@dataclass(frozen=True, slots=True)
class TableAsked(Options):
    """The table that a command is about, and its settings."""

    table: TableOption = ""
    config: ConfigOption = None
    storage_option: StorageOption = None

    def settings(self, *, defining: bool = False, name: str = "", find: Find = "active") -> Settings:
        """Read the settings with this command's options (``read_settings``)."""
        return read_settings(self.config, self.table, self.storage_option, defining=defining, name=name, find=find)

    def settings_and_catalog(self) -> tuple[Settings, StoredCatalog | None]:
        """Return the settings, and the catalog that they name, which is opened once; None if they name none.

        The table's name may be that of a dropped table.
        """
        from lancewal_core.catalog.opened import catalog_of

        settings, table = _given(self.config, self.storage_option), self.table
        catalog = catalog_of(settings)
        if catalog is not None:
            settings, table = _from_catalog(catalog, settings, table, dropped=True)
        return _of_table(settings, table, defining=False), catalog


@dataclass(frozen=True, slots=True)
class Asked(TableAsked):
    """Options of a command that reports something."""

    output: OutputOption = Output.TEXT

    @property
    def as_json(self) -> bool:
        return self.output is Output.JSON

    def report(self, content: object, text: str, *, dry_run: bool = False) -> None:
        """Print ``content`` as JSON, or ``text`` for people.  The text ends with a note if this was a ``dry_run``."""
        if self.as_json:
            say_json(content)
        else:
            say(f"{text}\n{NOTHING_CHANGED}" if dry_run else text)

    def report_dropped(self, kind: str, name: str, *, dry_run: bool) -> None:
        """Print that the ``kind`` of this name was dropped; after a ``dry_run``, that nothing was changed."""
        text = f"{kind} {name}: {NOTHING_CHANGED}" if dry_run else f"dropped {kind} {name}"
        self.report({"dropped": [] if dry_run else [name]}, text)


@dataclass(frozen=True, slots=True)
class SettingsAsked(Options):
    """Options of a command that is about no single table, and reports something."""

    config: ConfigOption = None
    storage_option: StorageOption = None
    output: OutputOption = Output.TEXT

    def settings(self) -> Settings:
        return read_settings(self.config, "", self.storage_option, find="none")

    def settings_and_catalog(self) -> tuple[Settings, StoredCatalog]:
        """Return the settings, and the catalog that they name.  Raises ``InvalidSettings`` if they name none."""
        from lancewal_core.catalog.opened import set_catalog

        settings = self.settings()
        return settings, set_catalog(settings)

    def report(self, content: object, text: str) -> None:
        Asked("", self.config, self.storage_option, self.output).report(content, text)


def read_settings(
    config: Path | None,
    table: str = "",
    storage_option: Sequence[str] | None = None,
    *,
    defining: bool = False,
    name: str = "",
    find: Find = "active",
) -> Settings:
    """Read the settings of this process.  Commands read the environment only here.

    ``table`` replaces ``table.uri``.  If that is another table, the configured table's settings are left out, except
    ``table.base_paths``.  With ``defining`` they are kept, because the command makes a table with them at the other
    address.

    If the settings have a catalog, ``table`` and ``table.uri`` may be names (``catalog.named``), and the result has
    the address.  ``find``: ``active`` finds active tables; with ``none`` no catalog is asked.  ``name`` is the name
    that a new table at the address will get.  If there is no address, the table lies in the catalog's root.

    Raises ``InvalidSettings`` or ``InvalidInput``; for a name ``TableUnknown``, and errors of the catalog.
    """
    settings = _given(config, storage_option)
    if name:
        _check_new_name(settings, name)
    if find != "none" and settings.catalog.is_set:
        settings, table = _with_addresses(settings, table, name)
    return _of_table(settings, table, defining=defining)


def _given(config: Path | None, storage_option: Sequence[str] | None) -> Settings:
    from lancewal_core.settings.load import load_settings, with_accounts

    settings = load_settings(config, os.environ)
    if storage_option:
        options = {**settings.storage.options, **dict(map(_name_and_value, storage_option))}
        settings = settings.model_copy(update={"storage": settings.storage.model_copy(update={"options": options})})
        settings = with_accounts(settings)
    return settings


def _of_table(settings: Settings, table: str, *, defining: bool) -> Settings:
    from lancewal_core.store.address import whole_address

    if table:
        named = _at(whole_address(table, settings.storage.options))
        if named.uri != settings.table.uri:
            section = named.model_copy(update={"base_paths": settings.table.base_paths})
            if defining:
                section = settings.table.model_copy(update={"uri": named.uri})
            settings = settings.model_copy(update={"table": section})
    return settings


def _with_addresses(settings: Settings, table: str, name: str) -> tuple[Settings, str]:
    """Return the settings, and ``table``, with addresses in the place of names.

    If ``table`` is a name, the catalog need not know the configured one.  If ``table`` is an address, no catalog is
    asked: a table is always opened by its address.  Without an address a table of a new ``name`` lies in the
    catalog's root.
    """
    from lancewal_core.catalog.named import may_be_name
    from lancewal_core.catalog.opened import catalog_of

    configured = settings.table.uri
    if name and not table and (not configured or may_be_name(configured)):
        table = _in_root(settings, name)
    if not may_be_name(table or configured):
        return settings, table
    catalog = catalog_of(settings)
    assert catalog is not None
    return _from_catalog(catalog, settings, table, dropped=False)


def _from_catalog(catalog: StoredCatalog, settings: Settings, table: str, *, dropped: bool) -> tuple[Settings, str]:
    from lancewal_core.catalog.named import address_of, known_address

    of_configured = known_address if table else address_of
    uri = of_configured(catalog, settings.table.uri, dropped=dropped)
    section = settings.table.model_copy(update={"uri": uri})
    return settings.model_copy(update={"table": section}), address_of(catalog, table, dropped=dropped)


def _check_new_name(settings: Settings, name: str) -> None:
    from lancewal_core.catalog.table_name import table_name

    table_name(name)
    if not settings.catalog.is_set:
        raise InvalidInput(f"the name {name!r} needs a catalog: set catalog.root in the settings")


def _in_root(settings: Settings, name: str) -> str:
    from lancewal_core.catalog.table_name import default_uri

    if not settings.catalog.root:
        raise InvalidInput(f"the table {name!r} needs an address: give it by --table ADDRESS, or set catalog.root")
    return default_uri(settings.catalog.root, name)


def agree(yes: bool, to: str) -> None:
    """Ask the user for consent before data is lost for good.

    ``to`` says what is done, as a clause.  Raises ``InvalidInput`` if the answer is no, or if there is no terminal to
    ask at.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"nothing was changed: nobody can be asked here. With --yes, {to}. This cannot be undone: try --dry-run first"
        )
    typer.echo(many_lines(f"{to}. This cannot be undone. Continue? [y/N] "), err=True, nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InvalidInput("nothing was changed")


def _at(table: str) -> TableSettings:
    from pydantic import ValidationError

    from lancewal_core.settings.sections import TableSettings
    from lancewal_core.store.address import split_address

    split_address(table)
    try:
        return TableSettings.model_validate({"uri": table})
    except ValidationError as error:
        raise InvalidInput(f"--table: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error


def _name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidInput("--storage-option: expected NAME=VALUE (what was given is not shown, it may be a secret)")
    return name, value
