"""Classes for changes of a table's columns.

A change names a column, or a member of a struct by the path to it: ``address.zip``.  A path goes through lists without
naming their items: ``lines.price`` is the member ``price`` of the structs in the list ``lines``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lancewal_core.rows.carry import Tree
from lancewal_core.settings.declared import OF_ITSELF, ColumnSource

Path = tuple[str, ...]
_SIGNS = frozenset('=:."*')
"""Characters that have a meaning on the command line if a name with them is not in quotes."""


def option(path: Path) -> str:
    """Return the path as it must be written on the command line.  A name that would otherwise be misread is in double
    quotes.
    """
    odd = [part != part.strip() or not part.isprintable() or bool(_SIGNS & set(part)) for part in path]
    return ".".join(json.dumps(part) if quoted else part for part, quoted in zip(path, odd, strict=True))


@dataclass(frozen=True, slots=True)
class Added:
    """A column or member to add.  It is null in rows that exist already.  ``default``: value, as JSON, that upserts
    without the column get."""

    path: Path
    type: pa.DataType
    default: str | None = None
    source: ColumnSource = OF_ITSELF
    """Source of the column's values in records."""


@dataclass(frozen=True, slots=True)
class Widened:
    """A column or member that gets a wider type."""

    path: Path
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Renamed:
    """A column or member that gets another name."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """A column or member to drop."""

    path: Path


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A former or dropped name that records may no longer use."""

    path: Path


@dataclass(frozen=True, slots=True)
class Adopted:
    """A change of a column or member by another program that the contract is to take over.

    ``path``: the field's name in the table or in the contract; the empty path stands for all such changes.  ``adopt``
    makes one ``Adoption`` of all ``Adopted``."""

    path: Path


@dataclass(frozen=True, slots=True)
class TakenField:
    """A column or member that another program has added to the table.  ``path``: its name in the table."""

    path: Path
    tree: Tree
    """The field with Lance's ids."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """All changes by other programs that the contract takes over, as one change.  So one field may get a name that
    another one had.  Fields of the contract are named by their first ids (``Column.ids``)."""

    names: Mapping[int, str]
    """First id to new name, for renamed fields."""
    dropped: frozenset[int]
    """First ids of dropped fields."""
    taken: Sequence[TakenField]
    """Fields that other programs have added."""


Change = Added | Widened | Renamed | Dropped | Forgotten | Adopted
"""A change that a caller may ask for."""
ContractChange = Added | Widened | Renamed | Dropped | Forgotten | Adoption
"""A change from which ``next_contract.changed`` makes the next contract version."""
