"""Many schedules, on all processors.

Which schedules run depends on kinds and seeds alone, not on the machine; failures come back as text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.simulation.kinds import KINDS
from tests.simulation.processes import one_for_each_processor
from tests.simulation.run import SimulationFailed, run

_BATCH = 10


@dataclass(slots=True)
class Totals:
    """What schedules did, all together."""

    runs: int = 0
    switches: int = 0
    traces: set[tuple[str, int]] = field(default_factory=set)
    """Kind and trace of each schedule that was long enough."""
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Totals) -> None:
        self.runs += other.runs
        self.switches += other.switches
        self.traces |= other.traces
        self.counts.update(other.counts)
        self.failures += other.failures

    def text(self) -> str:
        lines = [
            f"{self.runs} runs, {len(self.failures)} failed, {len(self.traces)} schedules, {self.switches} switches"
        ]
        return "\n".join([*lines, *(f"  {count:8d} {event}" for event, count in sorted(self.counts.items()))])


def run_batch(kind: str, seeds: Sequence[int], switches_min: int) -> Totals:
    """These seeds, one after the other."""
    totals = Totals()
    for seed in seeds:
        totals.runs += 1
        try:
            report = run(seed, KINDS[kind])
        except SimulationFailed as error:
            totals.failures.append(str(error))
        else:
            totals.switches += report.switches
            totals.counts.update(report.counts)
            if report.switches >= switches_min:
                totals.traces.add((kind, report.trace))
    return totals


def run_many(wanted: Iterable[tuple[str, range]], switches_min: int = 0) -> Totals:
    """All seeds of each kind, in a pool of processes."""
    batches = [
        (kind, seeds[at : at + _BATCH], switches_min) for kind, seeds in wanted for at in range(0, len(seeds), _BATCH)
    ]
    totals = Totals()
    with one_for_each_processor() as pool:
        for done in pool.map(run_batch, *zip(*batches, strict=True)):
            totals.add(done)
    return totals
