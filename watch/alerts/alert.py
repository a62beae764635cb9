"""What an alert consists of, and how its expression becomes one of the chart or of a plain rules file.

In expressions stand places that are filled later:

* ``@``, ``@ingest``, ``@flusher`` and ``@both`` in the braces of a selector: matchers for the processes that are meant.
  ``@`` is for metrics of lancewal's own, which no other program has; a plain rules file needs no matcher for them.
* ``%name%``: one of the alert's ``values``.  They are values of the chart, under the alert's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Severity = Literal["critical", "warning"]
Value = float | int | str

#: Matchers of a plain rules file: jobs are called as in docker-compose.yml.
JOBS = {
    "ingest": 'job="lancewal-ingest"',
    "flusher": 'job="lancewal-flusher"',
    "both": 'job=~"lancewal-(ingest|flusher)"',
    "": "",
}
_PLACE = re.compile(r"@(ingest|flusher|both|)(?=[},])")
_VALUE = re.compile(r"%(\w+)%")


@dataclass(frozen=True, slots=True)
class Alert:
    """``summary`` is the sentence that a person is woken with, ``advice`` what to do first; the runbook has the rest.

    ``pending`` is Prometheus' ``for``: how long the expression must hold.
    """

    name: str
    expression: str
    summary: str
    advice: str
    severity: Severity = "warning"
    pending: str = "5m"
    values: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def runbook(self) -> str:
        """The page's name, behind the base that the chart's value or the rules file says."""
        return f"{self.name}.md"

    def plain(self, changed: Mapping[str, Value] | None = None) -> str:
        """The expression of a plain rules file; ``changed`` replaces some of the values."""
        return fill(selected(" ".join(self.expression.split()), JOBS), {**self.values, **(changed or {})})

    def said(self, text: str, changed: Mapping[str, Value] | None = None) -> str:
        """``summary`` or ``advice`` with the values in it."""
        return fill(text, {**self.values, **(changed or {})})


def counted(counter: str, process: str) -> str:
    """Return the expression for what ``counter`` of ``process`` (``ingest``, ``flusher``) counted within ``%window%``.

    A counter with labels has no series before it first counts, and ``increase`` does not see a series begin. A series that
    was not there a window ago counts whole if its process was there without it, or has started since. Otherwise Prometheus
    first looks at this process, and its series may be as old as the process.
    """
    metric, started = f"{counter}{{@}}", f"process_start_time_seconds{{@{process}}}"
    window_ago = "scalar(min_over_time(vector(time())[%window%:15s]))"
    return (
        f"(increase({metric}[%window%]) > 0 or ({metric} unless {metric} offset %window%)"
        f" and on (job, instance) ({started} offset %window% or {started} > {window_ago}))"
    )


def selected(expression: str, matchers: Mapping[str, str]) -> str:
    """The expression with matchers in the places for them; braces without any go."""
    filled = _PLACE.sub(lambda place: matchers[place[1]], expression)
    return filled.replace("{}", "").replace(",}", "}")


def fill(text: str, values: Mapping[str, Value]) -> str:
    """``KeyError`` for a place that has no value."""
    return _VALUE.sub(lambda place: str(values[place[1]]), text)
