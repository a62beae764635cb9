"""Find the metrics and labels that an expression of PromQL names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import promql_parser


@dataclass(frozen=True, slots=True)
class Selection:
    """One selector of an expression: the metric, and the labels of its matchers."""

    metric: str
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    selections: Sequence[Selection]
    labels: frozenset[str]
    """Labels that ``by``, ``on`` and similar clauses name."""

    @property
    def metrics(self) -> frozenset[str]:
        return frozenset(selection.metric for selection in self.selections)


def parts(expression: str) -> Parts:
    """Return the selectors and labels of an expression.  ``ValueError`` if the text is not valid PromQL."""
    selections: list[Selection] = []
    labels: set[str] = set()

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            matchers = node.matchers.matchers
            selections.append(Selection(node.name or "", tuple(matcher.name for matcher in matchers)))
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            labels.update(node.modifier.labels)
        if isinstance(node, promql_parser.BinaryExpr) and node.modifier is not None:
            matching = node.modifier.matching
            labels.update(matching.labels if matching is not None else ())
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return Parts(selections, frozenset(labels))
