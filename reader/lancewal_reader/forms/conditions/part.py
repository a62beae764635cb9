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
    """An expression.  Its ``rank`` is that of its weakest operator.  A literal has a ``value``, a list ``items``."""

    sql: str
    rank: int = Rank.UNIT
    type: pa.DataType | None = None
    value: Value | None = None
    items: tuple[Part, ...] | None = None

    def within(self, rank: int) -> str:
        """Return the SQL as an operand of an operator of this rank, in brackets if it needs them."""
        return self.sql if self.rank >= rank else f"({self.sql})"

    def of(self, kind: Callable[[pa.DataType], bool]) -> bool:
        """Whether the part is not a literal, and has a known type of this kind."""
        return self.type is not None and self.value is None and kind(self.type)


def holds(sql: str, rank: int = Rank.COMPARISON) -> Part:
    """Return a part that is true or false."""
    return Part(sql, rank, pa.bool_())


def quoted(text: str) -> Part:
    """Return the literal of a text."""
    return Part("'" + text.replace("'", "''") + "'", type=pa.string(), value=text)
