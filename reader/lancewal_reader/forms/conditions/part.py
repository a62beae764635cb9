"""Parts of a condition, in Lance's SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from lancewal_reader.forms.conditions.exact_values import Value

Rank = IntEnum("Rank", "OR AND NOT IS COMPARISON SHIFT SUM PRODUCT MINUS UNIT")
"""Operators, the weakest first."""


class NotAccepted(Exception):
    """The reason why a condition is not accepted."""


@dataclass(frozen=True, slots=True)
class Part:
    """An expression.  Its ``rank`` is that of its operator with the lowest precedence.  Literals have a ``value``,
    lists have ``items``.
    """

    sql: str
    rank: int = Rank.UNIT
    type: pa.DataType | None = None
    value: Value | None = None
    items: tuple[Part, ...] | None = None

    def within(self, rank: int) -> str:
        """Return the SQL for use as an operand of an operator with this rank, with brackets if they are needed."""
        return self.sql if self.rank >= rank else f"({self.sql})"

    def of(self, kind: Callable[[pa.DataType], bool]) -> bool:
        """Whether this is not a literal, and has a known type for which ``kind`` returns True."""
        return self.type is not None and self.value is None and kind(self.type)


def holds(sql: str, rank: int = Rank.COMPARISON) -> Part:
    """Return a part whose type is boolean."""
    return Part(sql, rank, pa.bool_())


def quoted(text: str) -> Part:
    """Return a string literal."""
    return Part("'" + text.replace("'", "''") + "'", type=pa.string(), value=text)
