"""Limits of the columns that are made for fields of a schema, for all formats: types, nesting and number.

A short schema may have very many fields, since it may use the name of a type again and again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

import pyarrow as pa

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.column_types import format_type
from lancewal_ingest.decode.json.types import NESTING_MAX as NESTING_MAX

T = TypeVar("T")
_FIELDS_MAX = 4096
"""Maximum number of fields in one column, nested ones included."""
_ALL_FIELDS_MAX = 1 << 16
"""Maximum number of fields in all columns of a schema together."""


class ColumnTypes(ABC, Generic[T]):
    """Types of columns for the fields of one schema.  ``T`` is the format's class of types.  The number of fields is
    limited.
    """

    def __init__(self) -> None:
        self._left = _ALL_FIELDS_MAX
        self._left_of_column = 0

    def of(self, type_: T) -> pa.DataType | None:
        """Return the type of a column that holds every value of a type; None if lancewal has no such column."""
        self._left_of_column = _FIELDS_MAX
        return possible(self.column_of(type_))

    @abstractmethod
    def column_of(self, type_: T) -> pa.DataType | None:
        """Return the type for a column at the top level; ``of`` checks whether a column can have it.  None if there
        is no such type.
        """

    def take(self) -> bool:
        """Count one more field.  Return False if a limit is reached already."""
        has_room = min(self._left_of_column, self._left) > 0
        self._left_of_column -= has_room
        self._left -= has_room
        return has_room


def struct_of_all(members: Iterable[tuple[str, pa.DataType | None]]) -> pa.DataType | None:
    """Return a struct type of the members.  None if there are none, or if a member cannot be a column."""
    found = []
    for name, type_ in members:
        if type_ is None:
            return None
        found.append((name, type_))
    return pa.struct(found) if found else None


def possible(type_: pa.DataType | None) -> pa.DataType | None:
    """Return ``type_`` if a column can have this type, otherwise None."""
    if type_ is None:
        return None
    try:
        format_type(type_)
    except InvalidSchema:
        return None
    return type_
