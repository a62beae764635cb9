"""Metrics as declarations: a table for each service says which metrics it has, and what each means.

A service's table is a class with a member for each metric.  A metric is named by the table's prefix and the member's
name:

    class WorkerMetrics(MetricTable, prefix="lancewal_worker"):
        rows = counter("Rows made durable.", "partition")

    metrics = WorkerMetrics("orders")
    metrics.rows.labels("3").inc(100)

The object registers its metrics in the given registry, or in a new one.  ``metrics.rows`` is the metric itself
(prometheus_client's ``Counter``).  The reference page is made of ``WorkerMetrics.declared()``.

Guarantees
 1. A name is declared once, with one kind, and nothing is registered globally.
 2. A scrape shows every metric with the label ``table``; its value is that of the object.  An info has only the labels
    that it declares.
 3. A counter is shown with 0 from the beginning, for each label value that is declared with it (``known``).  So its
    first increase already gives a rate.
 4. A time (``..._timestamp_seconds``) that was never set is not shown, so nobody computes an age from it.
 5. If partitions are not shown separately, the label ``partition`` is gone, and one sample stands for all that differ
    in it alone.  Counters, histograms, positions, rows, bytes and booleans are summed; the sum of a boolean is the
    number of partitions for which it is true.  Gauges of ages and durations (``_seconds``) show the largest, and times
    (``_timestamp_seconds``) the earliest: an alert needs the worst partition.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast, overload

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

Kind = Literal["counter", "gauge", "histogram", "info"]
M = TypeVar("M", bound=Counter | Gauge | Histogram | Info)
_TIME = "_timestamp_seconds"
_CREATED = "_created"
"""Suffix of the metric with which prometheus_client says when a counter or a histogram was made.  Its value is a
time, too."""
_AGE = "_seconds"


@dataclass(frozen=True, slots=True)
class Declaration:
    """Declaration of a metric.  ``name`` is the name in a scrape: a counter's ends with ``_total``, an info's with
    ``_info``."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


class Declared(Generic[M]):
    """A metric of a table.  The class attribute is the declaration; the instance attribute is the metric."""

    def __init__(self, kind: Kind, meaning: str, labels: tuple[str, ...], make: Callable[..., M]) -> None:
        self.kind = kind
        self.meaning = meaning
        self.labels = labels
        self._make = make
        self._member = ""

    def __set_name__(self, owner: type[MetricTable], name: str) -> None:
        self._member = name

    @overload
    def __get__(self, table: None, owner: type[MetricTable]) -> Self: ...
    @overload
    def __get__(self, table: MetricTable, owner: type[MetricTable]) -> M: ...
    def __get__(self, table: MetricTable | None, owner: type[MetricTable]) -> Self | M:
        if table is None:
            return self
        return cast(M, table.metrics[self._member])

    def made(self, prefix: str) -> M:
        return self._make(f"{prefix}_{self._member}", self.meaning, self.labels, registry=None)

    def declaration(self, prefix: str) -> Declaration:
        ending = {"counter": "_total", "info": "_info"}.get(self.kind, "")
        labels = self.labels if self.kind == "info" else ("table", *self.labels)
        return Declaration(f"{prefix}_{self._member}{ending}", self.kind, labels, self.meaning)


class MetricTable(Collector):
    """Base class for a service's metrics.  A table that extends another has the metrics of both, each with its own
    prefix."""

    prefix: ClassVar[str]

    def __init_subclass__(cls, *, prefix: str) -> None:
        cls.prefix = prefix
        names = Counts(name for base in cls.__mro__ if issubclass(base, MetricTable) for name, _ in base._members())
        if twice := [name for name, times in names.items() if times > 1]:
            raise TypeError(f"{cls.__name__} has two metrics called {', '.join(twice)}: one would hide the other")

    def __init__(self, table: str, *, per_partition: bool = True, registry: CollectorRegistry | None = None) -> None:
        self._table = table
        self._per_partition = per_partition
        self.metrics: dict[str, Any] = {
            name: member.made(cls.prefix)
            for cls in type(self).__mro__
            if issubclass(cls, MetricTable)
            for name, member in cls._members()
        }
        self.registry = registry or CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as guarantees 2, 4 and 5 say."""
        for metric in self.metrics.values():
            for family in metric.collect():
                if family.type != "info":
                    samples = [s for s in family.samples if s.value or not s.name.endswith(_TIME)]
                    if not self._per_partition:
                        samples = _summed(samples, family.type, "partition")
                    family.samples = [s._replace(labels={"table": self._table, **s.labels}) for s in samples]
                yield family

    def called(self, table: str) -> None:
        """Change the value of the label ``table`` from now on."""
        self._table = table

    @classmethod
    def declared(cls) -> Sequence[Declaration]:
        """Return the metrics that this class itself declares, in the order of the source."""
        return [member.declaration(cls.prefix) for _, member in cls._members()]

    @classmethod
    def _members(cls) -> Sequence[tuple[str, Declared[Any]]]:
        return [(name, member) for name, member in vars(cls).items() if isinstance(member, Declared)]


def counter(meaning: str, *labels: str, known: Sequence[tuple[str, ...] | str] = ()) -> Declared[Counter]:
    """Declare a metric that only grows.  A scrape shows it with ``_total``.

    ``known`` are label values that a scrape shows with 0 from the beginning.
    """

    def make(name: str, text: str, labels: Sequence[str], registry: None) -> Counter:
        made = Counter(name, text, labels, registry=registry)
        for values in known:
            made.labels(*((values,) if isinstance(values, str) else values))
        return made

    return Declared("counter", meaning, labels, make)


def gauge(meaning: str, *labels: str) -> Declared[Gauge]:
    """Declare a metric of a current value."""
    return Declared("gauge", meaning, labels, Gauge)


def histogram(meaning: str, buckets: Sequence[float], *labels: str) -> Declared[Histogram]:
    """Declare a metric that counts observations up to each of ``buckets``."""

    def make(name: str, text: str, labels: Sequence[str], registry: None) -> Histogram:
        return Histogram(name, text, labels, registry=registry, buckets=buckets)

    return Declared("histogram", meaning, labels, make)


def info(meaning: str, *labels: str) -> Declared[Info]:
    """Declare a metric of names and versions, each a label; its value is 1."""
    return Declared("info", meaning, labels, Info)


def show_only(gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
    """Set the gauge to exactly ``values``, and remove its other samples.  A key of ``values`` has the label values in
    the order of the gauge's labels.

    During the change, a concurrent scrape never misses label values that have a sample both before and after it.
    """
    for labels, value in values.items():
        gauge.labels(*labels).set(value)
    for sample in [sample for metric in gauge.collect() for sample in metric.samples]:
        if tuple(sample.labels.values()) not in values:
            gauge.remove_by_labels(sample.labels)


def _summed(samples: Iterable[Sample], kind: str, label: str) -> list[Sample]:
    """Return samples without ``label``, combined as guarantee 5 says.  ``kind`` is the kind of the metric.  A sample
    without the label stays unchanged."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[Sample]] = {}
    for sample in samples:
        rest = tuple(item for item in sample.labels.items() if item[0] != label)
        found.setdefault((sample.name, rest), []).append(sample)
    return [
        same[0]._replace(labels=dict(rest), value=_way(name, kind)([sample.value for sample in same]), exemplar=None)
        for (name, rest), same in found.items()
    ]


def _way(name: str, kind: str) -> Callable[[Sequence[float]], float]:
    if name.endswith((_TIME, _CREATED)):
        return min
    return max if kind == "gauge" and name.endswith(_AGE) else sum
