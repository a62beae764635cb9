"""One sample in place of many that differ in one label alone.

Of what is counted or measured out the sum stands: counters, histograms, positions, rows, bytes, and booleans, which then say
of how many it is so.  Of ages and durations (``_seconds``) it is the largest, of times (``_timestamp_seconds``) the earliest:
what an alarm looks at is that of the one which is worst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.samples import Sample

TIME = "_timestamp_seconds"
_CREATED = "_created"
"""When prometheus_client made a counter or a histogram: a time, too."""
_AGE = "_seconds"


def summed(samples: Iterable[Sample], kind: str, label: str) -> list[Sample]:
    """Without ``label``; ``kind`` is that of the metric.  A sample that does not have it stays as it is."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[Sample]] = {}
    for sample in samples:
        rest = tuple(item for item in sample.labels.items() if item[0] != label)
        found.setdefault((sample.name, rest), []).append(sample)
    return [
        same[0]._replace(labels=dict(rest), value=_way(name, kind)([sample.value for sample in same]), exemplar=None)
        for (name, rest), same in found.items()
    ]


def _way(name: str, kind: str) -> Callable[[Sequence[float]], float]:
    if name.endswith((TIME, _CREATED)):
        return min
    return max if kind == "gauge" and name.endswith(_AGE) else sum
