"""What a panel consists of.

In queries stand places that become the board's variables: ``@`` in the braces of a selector is the namespace and the table,
``@part`` the partition too, ``@process`` the namespace alone, for what a process says without a table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["line", "number"]
Unit = Literal["s", "bytes", "Bps", "short", "ops", "percentunit", "rowsps", "reqps", "none", "dateTimeFromNow"]
_PLACE = re.compile(r"@(part|process|)(?=[},])")
_MATCHERS = {
    "process": 'namespace=~"$namespace"',
    "": 'namespace=~"$namespace",table=~"$table"',
    "part": 'namespace=~"$namespace",table=~"$table",partition=~"$partition"',
}


@dataclass(frozen=True, slots=True)
class Query:
    """``legend`` has labels in double braces."""

    expression: str
    legend: str = ""

    @property
    def filled(self) -> str:
        """With Grafana's variables in it."""
        return _PLACE.sub(lambda place: _MATCHERS[place[1]], " ".join(self.expression.split()))


@dataclass(frozen=True, slots=True)
class Panel:
    """``shows`` and ``advice`` are its description; ``runbooks`` are names of alerts.

    ``moved_by`` is the load or fault after which it must show something else: one of ``tests/ops/faults.py``.
    """

    title: str
    shows: str
    advice: str
    queries: Sequence[Query]
    moved_by: str
    runbooks: Sequence[str] = ()
    unit: Unit = "short"
    kind: Kind = "line"
    width: int = 8
    height: int = 7
    limit: float | None = None
    """From here on it is drawn in red."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Board:
    uid: str
    title: str
    about: str
    sections: Sequence[Section]

    @property
    def panels(self) -> Sequence[Panel]:
        return [panel for section in self.sections for panel in section.panels]


def q(expression: str, legend: str = "") -> Query:
    return Query(expression, legend)


def rate(metric: str, by: str, place: str = "", legend: str = "") -> Query:
    """A second's share of a counter, summed by labels."""
    shown = legend or " ".join("{{" + label + "}}" for label in by.split(", "))
    return Query(f"sum by ({by}) (rate({metric}{{@{place}}}[$__rate_interval]))", shown)


def quantile(share: float, metric: str, *, by: str = "", more: str = "", legend: str = "") -> Query:
    """Of a histogram."""
    labels = f"le, {by}" if by else "le"
    name = f"p{share * 100:g}"
    shown = (
        " ".join([*("{{" + label + "}}" for label in by.split(", ") if by), legend, name]).replace("  ", " ").strip()
    )
    return Query(
        f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{{more}@}}[$__rate_interval])))", shown
    )
