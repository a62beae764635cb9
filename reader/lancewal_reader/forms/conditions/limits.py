"""Limits of the nesting and arithmetic of a condition: nothing overflows Lance's stack, and no value grows without bound.

Items of lists are not limited.
"""

from __future__ import annotations

from collections.abc import Callable

from lancewal_reader.forms.conditions.part import NotAccepted, Part

_DEPTH_MAX = 40
"""Largest number of levels of brackets.  Lance's parser accepts 47, or about 20 if an operator precedes each bracket.
It refuses deeper ones with an error of its own."""
_TERMS_MAX = 5_000
"""Largest number of terms joined by ``AND`` and ``OR``.  Lance accepts 8,000, and ends the process at 100,000."""
_STEPS_MAX = 100
"""Largest number of calls, casts and operators of arithmetic in one term.  Lance needs 2 s for 500 additions.  It ends
the process at 1,000 casts."""
_ALL_STEPS_MAX = 10_000
"""Largest number of calls, casts and operators of arithmetic in all terms.  Lance needs 5 s for 5,000 in terms of a
hundred each."""
STEPS_OF_A_CAST = 12
"""Steps that one cast counts as.  Each cast of a cast doubles Lance's time: 20 casts take no time, 50 take minutes."""
_JOINED_MAX = 100
"""Largest number of texts of a row that a condition joins.  A result may be that many times as long as the row."""


def _counts(most: int, where: str) -> str:
    return (
        f"its function calls, arithmetic operators and casts count for more than {most} in {where}; each cast counts as "
        f"{STEPS_OF_A_CAST}"
    )


class Limits:
    """Counters for one condition.  Each method raises ``NotAccepted`` when its limit is exceeded."""

    def __init__(self) -> None:
        self._depth = self._terms = self._all_steps = self._joined = 0
        self.steps = 0
        """Steps of the term that is read now."""

    def inside(self, read: Callable[[], Part]) -> Part:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise NotAccepted(f"more than {_DEPTH_MAX} expressions are nested in one another")
        part = read()
        self._depth -= 1
        return part

    def step(self, steps: int = 1) -> None:
        self.steps += steps
        self._all_steps += steps
        if self.steps > _STEPS_MAX:
            raise NotAccepted(_counts(_STEPS_MAX, "one term"))
        if self._all_steps > _ALL_STEPS_MAX:
            raise NotAccepted(_counts(_ALL_STEPS_MAX, "all"))

    def term(self, terms: int = 1) -> None:
        self._terms += terms
        if self._terms > _TERMS_MAX:
            raise NotAccepted(f"more than {_TERMS_MAX} terms are joined by AND and OR; use IN for a list of values")

    def join(self, texts: int) -> None:
        self._joined += texts
        if self._joined > _JOINED_MAX:
            raise NotAccepted(
                f"it joins more than {_JOINED_MAX} texts in all by ||, concat or concat_ws; literals do not count"
            )

    def item(self, read: Callable[[], Part]) -> Part:
        """Read one item of a list by calling ``read``.  A literal does not count towards the limits."""
        before = self.steps, self._all_steps
        item = read()
        if item.value is not None or item.sql[:2].upper() == "X'":
            self.steps, self._all_steps = before
        else:
            self.term()
        return item

    def mark(self) -> tuple[int, int]:
        return self.steps, self._terms

    def twice(self, mark: tuple[int, int]) -> None:
        """Count everything that was read since ``mark`` a second time, because Lance duplicates it."""
        self.step(self.steps - mark[0] + 1)
        self.term(self._terms - mark[1])
