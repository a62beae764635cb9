"""``lancewal inspect OBJECT`` and ``lancewal inspect --partition PARTITION``: show one stored object to a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lancewal_core.cli.named import partition_named
from lancewal_core.cli.options import Asked
from lancewal_core.cli.output import aligned, one_line, terms
from lancewal_core.errors import InvalidInput
from lancewal_core.process.clock import utc_text
from lancewal_core.process.library_errors import without_secrets
from lancewal_core.store.address import split_address

if TYPE_CHECKING:
    from lancewal_core.cli.stored_object import Inspected
    from lancewal_core.names.ids import Page, Region
    from lancewal_core.store.object_store import ObjectStore

_ROOT = "_lancewal/"


def command(
    asked: Asked,
    object_: Annotated[
        str,
        typer.Argument(
            metavar="OBJECT",
            help="A key of the table, such as _lancewal/contract/18446744073709551614.json, or its path or URI as a whole.",
        ),
    ] = "",
    partition: Annotated[
        str, typer.Option(metavar="PARTITION", help="Show the newest state of this partition: 3, or orders-3.")
    ] = "",
) -> None:
    """Show what one stored object says: contract, control, WAL segment, fence or bundle, state page, history page,
    flush, accepted loss, merge record.

    The command checks the whole object, as services do. A damaged object ends it with an error and exit code 4.

    Example: lancewal inspect --partition orders-3
    """
    from lancewal_core.cli.stored_object import inspect_object, inspect_region
    from lancewal_core.store.obstore import open_store

    if bool(object_) == bool(partition):
        raise InvalidInput("expected either OBJECT or --partition PARTITION")
    where, key = place(object_)
    settings = asked.settings()
    where = where or settings.table.uri
    if not where:
        raise InvalidInput(
            f"no table is known for {object_ or partition!r}: give --table, set table.uri, or give the object's full address"
        )
    store = open_store(where, settings.storage.options)
    found = inspect_object(store, key) if key else inspect_region(store, *_region(store, where, partition))
    asked.report(as_json(found), as_text(found))


def place(text: str) -> tuple[str, str]:
    """Return the table's address and the object's key, from the object's full address.

    If ``text`` is only a key, the address is empty.
    """
    split_address(text)
    if text.startswith(_ROOT) or not text:
        return "", text
    where, found, rest = text.rpartition(f"/{_ROOT}")
    if not found:
        text = without_secrets(text)
        raise InvalidInput(
            f"{text!r} does not lie below a table's {_ROOT}, so it is not an object of lancewal",
            object=text,
        )
    return where or "/", f"{_ROOT}{rest}"


def _region(store: ObjectStore, where: str, text: str) -> tuple[Region, Page]:
    """Return the region of a partition, and the page in which its state lies."""
    from lancewal_core.table.contract import read_contract

    contract = read_contract(store, where)
    region = contract.regions[partition_named(text, contract)]
    return region, contract.page_of(region)


def as_json(found: Inspected) -> dict[str, Any]:
    return {"object": found.key, "what": found.kind, "size": found.size, **found.content}


def as_text(found: Inspected) -> str:
    """Return the content as text: one aligned line for each name and value, then the tables."""
    tables = {name: value for name, value in found.content.items() if _is_table(value)}
    said = {
        "object": one_line(found.key),
        "what": f"{found.kind}, {found.size} bytes",
        **{_title(name): _cell(name, value) for name, value in found.content.items() if name not in tables},
    }
    lines = terms(said)
    for name, rows in tables.items():
        lines += ["", f"{_title(name)}:", *_table(rows)]
    return "\n".join(lines)


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(rows[0])
    cells = [[_title(name) for name in names], *([_cell(name, row[name]) for name in names] for row in rows)]
    figures = [all(isinstance(row[name], int | None) and not name.endswith("_ms") for row in rows) for name in names]
    return aligned(cells, [i for i, figure in enumerate(figures) if figure])


def _title(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _cell(name: str, value: object) -> str:
    match value:
        case None | [] | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() if name.endswith("_ms"):
            return utc_text(value)
        case list() | tuple():
            return one_line(", ".join(str(item) for item in value))
        case _:
            return one_line(str(value))
