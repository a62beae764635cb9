"""Definition of the panels of a dashboard.

A query has placeholders in the braces of a selector, which become matchers by the board's variables.  ``@`` matches the
namespace and the table.  ``@part`` also matches the partition.  ``@process`` matches only the namespace, for metrics
without a table.
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
    """A query of a panel.  ``legend`` may have labels in double braces."""

    expression: str
    legend: str = ""

    @property
    def filled(self) -> str:
        """The expression with matchers by Grafana's variables in place of placeholders."""
        return _PLACE.sub(lambda place: _MATCHERS[place[1]], " ".join(self.expression.split()))


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel.  ``shows`` and ``advice`` are its description; ``runbooks`` are names of alerts.

    ``moved_by`` is the load or fault that must change what the panel shows: one of ``tests/ops/faults.py``.
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
    """Value from which on the panel is drawn in red."""


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
    """Return the query for a counter's increase per second, summed by the labels ``by``; ``place`` is a placeholder."""
    shown = legend or " ".join("{{" + label + "}}" for label in by.split(", "))
    return Query(f"sum by ({by}) (rate({metric}{{@{place}}}[$__rate_interval]))", shown)


def quantile(share: float, metric: str, *, by: str = "", more: str = "", legend: str = "") -> Query:
    """Return the query for a quantile of the histogram ``metric``, by the labels ``by``; ``more`` are further matchers."""
    labels = f"le, {by}" if by else "le"
    name = f"p{share * 100:g}"
    shown = (
        " ".join([*("{{" + label + "}}" for label in by.split(", ") if by), legend, name]).replace("  ", " ").strip()
    )
    return Query(
        f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{{{more}@}}[$__rate_interval])))", shown
    )
