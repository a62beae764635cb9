"""Parts of a settings file as text: columns for fields and their types, and values in YAML.

1. A field whose name no column can have gets another name for its column, and the column names the field.
2. A field that cannot be a column is named in a comment, with the reason.
3. A text of a schema or record that is written into a comment cannot end the comment's line.
"""

from __future__ import annotations

import itertools
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from lancewal_core.errors import InvalidSchema, counted, some_of

if TYPE_CHECKING:
    import pyarrow as pa

    Fields = Sequence[tuple[str, pa.DataType | None]]

SHOWN = 100
_NOT_TAKEN_MAX = 100
"""Largest number of fields without a column that are listed."""

_NEXT_LINE = "\x85"

Columns = dict[str, tuple["pa.DataType", str | None]]
"""Type of each column, and the name in records if that is another one."""


def columns_for(fields: Fields) -> tuple[Columns, list[tuple[str, str]]]:
    """Return the columns for ``fields``, and for each other field the reason why it has no column."""
    from lancewal_core.rows.schema import COLUMNS_MAX

    columns: Columns = {}
    left_out: list[tuple[str, str]] = []
    taken: set[str] = set()
    for name, type_ in fields:
        if type_ is None:
            left_out.append((name, "no column type fits it"))
            continue
        if len(columns) == COLUMNS_MAX:
            left_out.append((name, f"a table has at most {COLUMNS_MAX} columns"))
            continue
        free = _can_be_named(name) and name.lower() not in taken
        if not free and (not name or "." in name):
            left_out.append((name, "neither a column nor its setting `field` can have this name"))
            continue
        own = name if free else _other_name(name, taken)
        columns[own] = (type_, None if free else name)
        taken.add(own.lower())
    return columns, left_out


def _can_be_named(name: str) -> bool:
    import pyarrow as pa

    from lancewal_core.rows.schema import RowSchema, check_row_schema

    try:
        check_row_schema(RowSchema(pa.schema([(name, pa.int64())]), (name,), ()))
    except InvalidSchema:
        return False
    return True


def _other_name(name: str, taken: set[str]) -> str:
    """Return a free column name for a field whose own name the column cannot have."""
    plain = re.sub("[^A-Za-z0-9_]", "_", name)
    plain = plain if _can_be_named(plain) else f"field{plain}"
    numbered = (f"{plain}_{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([plain], numbered) if one.lower() not in taken)


def are_keys(names: Sequence[str], columns: Columns) -> bool:
    """Return whether these columns can be the primary key and the region key. ``names``: the columns' names in
    records."""
    import pyarrow as pa

    from lancewal_core.rows.schema import RowSchema, check_row_schema

    types = {field or column: type_ for column, (type_, field) in columns.items()}
    try:
        rows = pa.schema([(f"key{number}", types[name]) for number, name in enumerate(names)])
        check_row_schema(RowSchema(rows, tuple(rows.names), tuple(rows.names)))
    except (InvalidSchema, KeyError):
        return False
    return True


def key_lines(names: Sequence[str], columns: Columns) -> Iterator[str]:
    """Yield the lines of the settings for keys. ``names``: the key columns' names in records; empty if they are
    unknown.
    """
    if names:
        by_field = {field or column: column for column, (_, field) in columns.items()}
        found = flow([by_field[name] for name in names])
        yield f"  primary_key: {found}"
        yield f"  region_key: {found}"
        return
    likely = next((name for name in columns if are_keys([name], columns)), "id")
    yield f"  # primary_key: {flow([likely])}    # The columns that identify a row."
    yield f"  # region_key: {flow([likely])}    # The columns that producers key by, as format.key says."


def column_lines(
    columns: Columns, left_out: Sequence[tuple[str, str]], remarks: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Yield the lines of the settings for columns. Comments name the fields without a column, and give the remarks
    about fields.
    """
    yield "  columns:" if columns else "  columns: {}    # The schema has no field that can be a column."
    for name, (type_, field) in columns.items():
        text = _type_text(type_)
        column = block({name: text if field is None else {"type": text, "field": field}})
        remark = remarks.get(field or name)
        yield textwrap.indent(f"{column}    # {remark}" if remark else column, " " * 4)
    yield from (f"    # No column for field {said(name)}: {why}" for name, why in left_out[:_NOT_TAKEN_MAX])
    if left_out[_NOT_TAKEN_MAX:]:
        yield f"    # No column for {counted(len(left_out) - _NOT_TAKEN_MAX, 'further field')}."
    if left_out:
        yield "  # on_unknown_column: ignore    # Without it, records with these fields are no rows."


def _type_text(type_: pa.DataType) -> str:
    from lancewal_core.rows.column_types import format_type

    return format_type(type_)


def block(value: Mapping[str, object]) -> str:
    """Return a mapping as YAML, over several lines."""
    return _dumped(value, sort_keys=False).rstrip("\n")


def flow(value: object) -> str:
    """Return a text or a list as YAML, on one line."""
    return _dumped([value], default_flow_style=True).strip()[1:-1]


def _dumped(value: object, *, sort_keys: bool = True, default_flow_style: bool = False) -> str:
    import yaml

    def dumped(*, escapes: bool) -> str:
        text: str = yaml.safe_dump(
            value,
            sort_keys=sort_keys,
            default_flow_style=default_flow_style,
            allow_unicode=not escapes,
            width=sys.maxsize,
        )
        return text

    text = dumped(escapes=False)
    return dumped(escapes=True) if _NEXT_LINE in text else text  # PyYAML would read it as a blank


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return a list of names for use in a sentence. Names come from a schema or from records, so they are escaped."""
    return some_of([said(name) for name in names], most)


def said(name: str) -> str:
    """Return a text of a schema, escaped so that it cannot end the line of a comment."""
    return ascii(name[:SHOWN])[1:-1] if name.isprintable() else ascii(name[:SHOWN])
