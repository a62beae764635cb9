"""Changes of columns: what each one names.

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
"""Signs that mean something in a name without quotes."""


def option(path: Path) -> str:
    """Return the path as it must be written on the command line.  A name that would otherwise be misread is in double
    quotes.
    """
    odd = [part != part.strip() or not part.isprintable() or bool(_SIGNS & set(part)) for part in path]
    return ".".join(json.dumps(part) if quoted else part for part, quoted in zip(path, odd, strict=True))


@dataclass(frozen=True, slots=True)
class Added:
    """A column or member to add, with nulls in the rows that are there.  ``default``: JSON that fills upserts without
    the column."""

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
    """Something that another program has done to a column or member.  ``path``: its name in the table or in the
    contract; the empty path stands for all such things.  ``adopt`` makes one ``Adoption`` of them."""

    path: Path


@dataclass(frozen=True, slots=True)
class TakenField:
    """A column or member that the table has already, from another program.  ``path``: its name in the table."""

    path: Path
    tree: Tree


@dataclass(frozen=True, slots=True)
class Adoption:
    """Changes by other programs, taken into the contract all at once.  So a field may have a name that another one gives up.
    Fields of the contract are known by the ids that they had at first."""

    names: Mapping[int, str]
    """New names of fields."""
    dropped: frozenset[int]
    taken: Sequence[TakenField]


Change = Added | Widened | Renamed | Dropped | Forgotten | Adopted
"""A change as it is asked for."""
ContractChange = Added | Widened | Renamed | Dropped | Forgotten | Adoption
"""A change as the contract takes it."""
