"""Changes of columns on the command line: the form of each, and the command that makes them.

A column whose name has ``=`` or ``:``, or a blank at an end, is named in double quotes, as JSON writes a text: ``"a=b"``.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Sequence

import pyarrow as pa

from lancewal_core.errors import InvalidInput, InvalidSchema
from lancewal_core.open import Address
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.library_errors import first_line
from lancewal_core.rows.column_types import parse_type
from lancewal_core.settings.declared import OF_ITSELF, ColumnSource, column_source, type_text
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import checked_column, checked_metadata
from lancewal_core.settings.sources import yaml_problem
from lancewal_core.table.checks import check_place
from lancewal_core.table.columns.changes import Added, Adopted, Change, Dropped, Forgotten, Path, Renamed, Widened
from lancewal_core.table.columns.steps import change_columns
from lancewal_core.table.contract import Contract, read_contract

_QUOTED = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*')


def alter_columns(settings: Settings, changes: Sequence[Change], *, look_only: bool = False) -> Contract:
    """Apply all changes as one version of the contract, and return it.  Raises the errors of ``change_columns``."""
    address = Address.of(settings)
    store, table = address.store(), address.table()
    check_place(address.uri, read_contract(store, address.uri))
    return change_columns(store, table, SystemClock(), lambda: uuid.uuid4().hex, changes, look_only=look_only)


def parse_added(text: str) -> Added:
    """Parse an added column: ``note: string`` or ``note: string = "none"``.

    In place of the type there may be a mapping as in the settings: ``at: {type: "timestamp[us, UTC]", json:
    epoch_ms}``, or ``place: {source: kafka.offset}``.
    """
    path, declared = _named(text, "NAME: TYPE or NAME: TYPE = DEFAULT")
    declared, equals, default = declared.partition("=")
    declared, source = _with_source(text, declared)
    type_ = _type(text, declared)
    if equals:
        from lancewal_ingest.decode.json.defaults import default_cell

        try:
            cell = default_cell(pa.field(path[-1], type_), default.strip(), form=source.json)
        except InvalidSchema as error:
            raise InvalidInput(f"{text!r}: {error}") from error
        if cell is None:
            raise InvalidInput(f"{text!r}: null is the default of every column. Leave it out")
    return Added(path, type_, default.strip() if equals else None, source)


def parse_widened(text: str) -> Widened:
    """Parse a widened column: ``fare: float64``."""
    path, type_text = _named(text, "NAME: TYPE")
    return Widened(path, _type(text, type_text))


def parse_renamed(text: str) -> Renamed:
    """Parse a renamed column: ``old=new``."""
    path, equals, name = _parted(text, "=")
    if not equals or not path.strip() or not name.strip():
        raise InvalidInput(f"{text!r}: expected OLD=NEW, such as fare=price or address.zip=postcode")
    new = _path(name, text)
    if len(new) > 1:
        raise InvalidInput(f"{text!r}: the new name {name.strip()!r} has a '.'. Give the last part alone")
    return Renamed(_path(path, text), new[0])


def parse_dropped(text: str) -> Dropped:
    """Parse a dropped column: ``note``."""
    return Dropped(_path(text, text))


def parse_forgotten(text: str) -> Forgotten:
    """Parse a name to forget: ``note``."""
    return Forgotten(_path(text, text))


def parse_adopted(text: str) -> Adopted:
    """Parse a column to adopt: ``embedding``, or ``*`` for all."""
    return Adopted(() if text.strip() == "*" else _path(text, text))


def changes_of_columns(
    renamed: Sequence[str] | None,
    widened: Sequence[str] | None,
    added: Sequence[str] | None,
    dropped: Sequence[str] | None,
    forgotten: Sequence[str] | None,
    adopted: Sequence[str] | None,
) -> list[Change]:
    """Parse the options about columns.  Return the changes in the order in which they are applied.

    Adoptions are last in the result, but ``change_columns`` applies them first.
    """
    parsed: list[tuple[Callable[[str], Change], Sequence[str] | None]] = [
        (parse_renamed, renamed),
        (parse_widened, widened),
        (parse_added, added),
        (parse_dropped, dropped),
        (parse_forgotten, forgotten),
        (parse_adopted, adopted),
    ]
    return [parse(text) for parse, texts in parsed for text in texts or ()]


def _named(text: str, form: str) -> tuple[Path, str]:
    name, colon, rest = _parted(text, ":")
    if not colon or not name.strip() or not rest.strip():
        raise InvalidInput(f"{text!r}: expected {form}, such as 'note: string'")
    return _path(name, text), rest


def _path(text: str, whole: str) -> Path:
    """Parse ``text``, a part of the option's value ``whole``, as the path of a column or member.  ``whole`` is for
    messages."""
    quoted = _QUOTED.match(text)
    if quoted is None:
        name, point, rest = text.partition(".")
        return (name.strip(), *(_path(rest, whole) if point else ()))
    rest = text[quoted.end() :]
    try:
        name = str(json.loads(quoted[1]))
    except ValueError:
        raise InvalidInput(f"{whole!r}: a name in double quotes is written as in JSON") from None
    if rest and not rest.startswith("."):
        raise InvalidInput(f"{whole!r}: expected nothing after the closing quote, or a '.' and a member's name")
    return (name, *(_path(rest[1:], whole) if rest else ()))


def _parted(text: str, sign: str) -> tuple[str, str, str]:
    """Return ``text.partition(sign)``, but ignore signs inside quoted names of the path with which ``text`` begins."""
    quoted = _QUOTED.match(text)
    after = 0 if quoted is None else quoted.end()
    name, found, rest = text[after:].partition(sign)
    first, point, others = name.partition(".")
    if point:
        inner, found, rest = _parted(f"{others}{found}{rest}", sign)
        name = f"{first}{point}{inner}"
    return text[:after] + name, found, rest


def _with_source(text: str, declared: str) -> tuple[str, ColumnSource]:
    """Parse what follows the column's name: a type, or a mapping as in the settings.  Return the type's text, and where
    the column's values come from.  ``text``: the whole option, for messages."""
    if not declared.strip().startswith("{"):
        return declared, OF_ITSELF
    import yaml

    try:
        given = yaml.safe_load(declared)
        given = checked_metadata(given) if "source" in given else checked_column(given)
    except yaml.YAMLError as error:
        raise InvalidInput(f"{text!r}: {yaml_problem(error)}") from error
    except ValueError as error:
        raise InvalidInput(f"{text!r}: {first_line(error)}") from error
    return type_text(given), column_source(given)


def _type(text: str, type_text: str) -> pa.DataType:
    try:
        return parse_type(type_text.strip())
    except InvalidSchema as error:
        raise InvalidInput(f"{text!r}: {error}") from error
