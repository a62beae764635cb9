"""Definition of an alert, and conversion of its expression for the chart or for a plain rules file.

An expression has placeholders that are filled in later:

* ``@``, ``@ingest``, ``@flusher`` and ``@both`` in the braces of a selector: matchers that select the processes.
  ``@`` is for lancewal's own metrics, which no other program exports; a plain rules file needs no matcher for them.
* ``%name%``: one of the alert's ``values``, which are also values of the chart, under the alert's name.
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
    """An alert.  ``summary`` is the text of the notification, ``advice`` the first thing to do; the runbook has the rest.

    ``pending`` is Prometheus' ``for``: how long the expression must hold before the alert fires.
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
        """File name of the alert's runbook.  The chart or the rules file puts the base address before it."""
        return f"{self.name}.md"

    def plain(self, changed: Mapping[str, Value] | None = None) -> str:
        """Return the expression for a plain rules file; ``changed`` replaces some of the values."""
        return fill(selected(" ".join(self.expression.split()), JOBS), {**self.values, **(changed or {})})

    def said(self, text: str, changed: Mapping[str, Value] | None = None) -> str:
        """Return ``summary`` or ``advice`` with the values filled in; ``changed`` replaces some of the values."""
        return fill(text, {**self.values, **(changed or {})})


def counted(counter: str, process: str, kind: str = "") -> str:
    """Return the expression for the increase of ``counter`` of ``process`` (``ingest``, ``flusher``) within ``%window%``.
    With ``kind``, only series with this label count.

    A counter with labels has no series before it first counts, and ``increase`` does not count a series' first value. If a
    series did not exist a window ago, its whole value counts. But its process must have existed then, or have started
    since. Otherwise Prometheus has only begun to scrape an old process, and the value may be older than the window.
    """
    of_kind = f'kind="{kind}",' if kind else ""
    metric, started = f"{counter}{{{of_kind}@}}", f"process_start_time_seconds{{@{process}}}"
    window_ago = "scalar(min_over_time(vector(time())[%window%:15s]))"
    return (
        f"(increase({metric}[%window%]) > 0 or ({metric} unless {metric} offset %window%)"
        f" and on (job, instance) ({started} offset %window% or {started} > {window_ago}))"
    )


def selected(expression: str, matchers: Mapping[str, str]) -> str:
    """Return the expression with ``matchers`` filled in for their placeholders, and without empty braces."""
    filled = _PLACE.sub(lambda place: matchers[place[1]], expression)
    return filled.replace("{}", "").replace(",}", "}")


def fill(text: str, values: Mapping[str, Value]) -> str:
    """Return ``text`` with each ``%name%`` replaced by its value.  ``KeyError`` if a name has no value."""
    return _VALUE.sub(lambda place: str(values[place[1]]), text)
