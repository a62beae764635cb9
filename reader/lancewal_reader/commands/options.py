"""Options that commands for reading have in common, the table that they open, and what they report on stderr."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from lancewal_core.cli.options import TableAsked
from lancewal_core.cli.output import say
from lancewal_core.errors import counted
from lancewal_core.settings.durations import option_s
from lancewal_reader.forms.row_output import Destination, RowOutput

if TYPE_CHECKING:
    import pyarrow as pa

    from lancewal_core.settings.load import Settings
    from lancewal_reader.point.read_options import Read
    from lancewal_reader.table import Table


FilterOption: TypeAlias = Annotated[
    str, typer.Option(help="A Lance SQL condition, e.g. \"status = 'open' AND amount > 10\".", metavar="SQL")
]


ColumnsOption: TypeAlias = Annotated[str, typer.Option(help="Comma-separated names; all by default.", metavar="NAMES")]
FormOption: TypeAlias = Annotated[RowOutput, typer.Option("--output", "-o", help="Format of the rows.")]
ToOption: TypeAlias = Annotated[Path | None, typer.Option(help="Write into this file instead of stdout.")]
GuardOption: TypeAlias = Annotated[
    bool, typer.Option("--guard-formulas", help="In CSV, put an apostrophe before texts that begin like a formula.")
]


@dataclass(frozen=True, slots=True)
class OpenAsked(TableAsked):
    """Options of a command that opens a table for reading."""

    conflicts: Annotated[
        Literal["leave-out", "fail"], typer.Option(help="Policy for keys that came through two partitions.")
    ] = "leave-out"
    unmerged_keys_max: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Refuse the read if more keys than this have unmerged records: their rows are held in memory. Default: "
            "10000000.",
            metavar="COUNT",
        ),
    ] = None

    def open(self) -> Table:
        """Open the table that the options name; see ``open_table``."""
        return self._opened(self.settings())

    def _opened(self, settings: Settings) -> Table:
        from lancewal_reader.table import open_table
        from lancewal_reader.unmerged.portions import UNMERGED_KEYS_MAX

        settings.need("table.uri")
        return open_table(
            settings.table.uri,
            storage_options=settings.storage.options,
            base_paths=settings.table.base_paths,
            conflicts=self.conflicts,
            unmerged_keys_max=UNMERGED_KEYS_MAX if self.unmerged_keys_max is None else self.unmerged_keys_max,
        )


def _at(settings: Settings, uri: str) -> Settings:
    return settings.model_copy(update={"table": settings.table.model_copy(update={"uri": uri})})


@dataclass(frozen=True, slots=True)
class ReadAsked(OpenAsked):
    """Options of a command that reads."""

    consistency: Annotated[
        Literal["strong", "eventual"],
        typer.Option(help="strong: every row durable before the call; eventual: the merged table alone."),
    ] = "strong"
    at: Annotated[
        str,
        typer.Option(
            help="A point: a receipt (lw1...), as a read prints it, version:412, positions:0=120,1=88, "
            "timestamp:2026-01-31T00:00:00Z, record-time:..., snapshot:NAME, or cut:NAME where the settings have a catalog.",
            metavar="POINT",
        ),
    ] = ""
    at_least: Annotated[
        str,
        typer.Option(
            help="Positions that the read must reach, given as a token (lw1...), a record such as orders-3-1841, or a "
            "receipt.",
            metavar="TOKEN",
        ),
    ] = ""
    timeout: Annotated[str, typer.Option(help="How long --at-least waits.", metavar="DURATION")] = "30s"
    max_staleness: Annotated[
        str,
        typer.Option(
            help="Accepted without effect, because a command plans each read again. Python's `max_staleness_s` has an effect.",
            metavar="DURATION",
        ),
    ] = ""

    def open(self) -> Table:
        """Open the table, as ``OpenAsked.open`` does. If ``--at`` names a cut, reads without a point of their own use
        the cut.
        """
        from lancewal_core.catalog.opened import catalog_of
        from lancewal_reader.cuts import is_cut, of_cut, table_in_cut
        from lancewal_reader.table import at_point

        if not is_cut(self.at):
            return self._opened(self.settings())
        settings = self.settings(find="none")  # a name is looked up in the cut first
        settings.need("table.uri")
        catalog, named = catalog_of(settings), settings.table.uri
        uri, point = table_in_cut(catalog, self.at, named, lambda: self.settings().table.uri)
        return at_point(of_cut(point, uri, lambda uri: self._opened(_at(settings, uri))), point)

    def read(self) -> Read:
        """Return the options of the read. Raises ``InvalidInput`` if a duration is wrong. A cut in ``--at`` is handled
        by ``open``.
        """
        from lancewal_reader.cuts import is_cut

        return {
            "consistency": self.consistency,
            "at": None if is_cut(self.at) else self.at or None,
            "at_least": self.at_least or None,
            "max_staleness_s": option_s("--max-staleness", self.max_staleness) if self.max_staleness else None,
            "timeout_s": option_s("--timeout", self.timeout),
        }


@dataclass(frozen=True, slots=True)
class RowsAsked(ReadAsked):
    """Options of a command that reads and writes rows."""

    columns: ColumnsOption = ""
    output: FormOption = "text"
    to: ToOption = None
    guard_formulas: GuardOption = False

    def destination(self) -> Destination:
        """Return the destination of the rows. Raises ``InvalidInput`` if it cannot be written to."""
        return Destination(self.output, self.to, self.guard_formulas)


def names_of(columns: str) -> list[str] | None:
    return [name.strip() for name in columns.split(",")] if columns else None


def say_left_out(schema: pa.Schema) -> None:
    from lancewal_reader.unmerged.left_out import left_out_of

    left = left_out_of(schema)
    if left:
        parts = []
        if left.waiting:
            parts.append(f"{counted(left.waiting, 'key')} in conflict, to be decided")
        if left.unmerged:
            through = f"through partitions {list(left.partitions)}"
            parts.append(f"unmerged records of {counted(left.unmerged, 'key')} in conflict, {through}")
        say(f"left out: {'; '.join(parts)}", err=True)


def say_receipt(schema: pa.Schema) -> None:
    from lancewal_reader.point.receipt import receipt_of

    say(f"receipt: {receipt_of(schema)}", err=True)
