"""Why an ingest is not ready, line by line; and what it says when it is.

Guarantees
 1. Ready: a member of its group, and every partition that is ours is open; or none is ours, which is said.
 2. Broker and store are asked beside the loop: whatever that waits for, their silence is named.
 3. A pause, and another owner's claim that came first, are no problems: one is wanted, the other is over with the next try.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lancewal_core.errors import Corrupt, PartitionCountChanged, Retry, StoreInconsistent, StoreUnavailable
from lancewal_core.names.ids import Region
from lancewal_core.process.health import Problem
from lancewal_core.process.silence import SilenceWatch
from lancewal_core.process.start import Start
from lancewal_core.table.control import ControlWatch
from lancewal_ingest.context import IngestContext
from lancewal_ingest.service.admission import Admission
from lancewal_ingest.service.contract_watch import ContractWatch
from lancewal_ingest.service.standstill import Standstill
from lancewal_ingest.service.worker import IngestWorker


@dataclass(frozen=True, slots=True)
class Shown:
    """Facts that a service that has begun is asked for."""

    worker: IngestWorker
    control: ControlWatch
    altered: ContractWatch
    admission: Admission
    still: Standstill
    silences: Sequence[SilenceWatch]
    context: IngestContext


class IngestProbes:
    """Asked by other threads, from the start on."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._shown: Shown | None = None

    def of(self, shown: Shown | None) -> None:
        """The service has begun; None: it begins again."""
        self._shown = shown

    def problems(self) -> Sequence[Problem]:
        """Why it is not ready."""
        if self._shown is not None:
            return problems(self._shown)
        return [self._start.problem or Problem("starting", "the service begins its work")]

    def waits(self) -> bool:
        """Whether the loop may stand still for what a restart does not mend."""
        return self._shown is None or any(silence.problem is not None for silence in self._shown.silences)

    def remark(self) -> str:
        """Return the remark of a service that is ready."""
        idle = self._shown is not None and not self._shown.worker.has_partitions
        return "no partition is assigned to this process" if idle else ""


def problems(shown: Shown) -> list[Problem]:
    """Guarantees 1 to 3."""
    worker, admission = shown.worker, shown.admission
    found = [*_more_partitions(shown)]
    found += [
        Problem.of(error, f"partition {region.partition} stopped") for region, error in sorted(worker.stopped.items())
    ]
    if shown.still.problem is not None:
        found.append(Problem("partition_stands", shown.still.problem))
    found += [silence.problem for silence in shown.silences if silence.problem is not None]
    if shown.altered.problem is not None:
        found.append(shown.altered.problem)
    if shown.control.problem is not None:
        found.append(Problem.of(shown.control.problem, "control cannot be read"))
    if admission.short and worker.waiting:
        found.append(
            Problem(
                "retention_short",
                f"partitions {_listed(worker.waiting)} are not opened: Kafka is about to delete records of "
                f"{_listed(admission.short)} that are not durable",
            )
        )
    damaged = {r: error for r, error in worker.refused.items() if isinstance(error, Corrupt | StoreInconsistent)}
    found += [Problem.of(error, f"partition {r.partition} cannot be opened") for r, error in sorted(damaged.items())]
    refused = {r: error for r, error in worker.refused.items() if isinstance(error, Retry)}
    for kind in sorted({error.kind for error in refused.values()}):
        waiting = [r for r, error in refused.items() if error.kind == kind]
        found.append(Problem.of(refused[min(waiting)], f"partitions {_listed(waiting)} cannot be opened"))
    if not worker.idle_or_progressing:
        found.append(Problem(StoreUnavailable.kind, "the store takes no segment, or no new index version"))
    return found or _beginning(worker)


def _beginning(worker: IngestWorker) -> list[Problem]:
    """Nothing is wrong, but it does not do its work yet."""
    if not worker.joined:
        return [Problem("joining", "the consumer group has not told yet which partitions are this process's")]
    if worker.waiting:
        return [Problem("opening", f"partitions {_listed(worker.waiting)} are assigned and not open yet")]
    if not worker.ready:
        return [Problem("fenced", "the log was fenced and no new one could be begun yet")]
    return []


def _more_partitions(shown: Shown) -> list[Problem]:
    drain, partitions = shown.context.drain, shown.context.contract.partitions
    if drain is None:
        return []
    return [
        Problem(
            PartitionCountChanged.kind,
            f"the topic has {drain.partitions} partitions, the contract says {partitions}: those of the contract are "
            f"drained, the others wait for `lancewal table alter --partitions {drain.partitions}`",
        )
    ]


def _listed(regions: Collection[Region]) -> str:
    return ", ".join(str(region.partition) for region in sorted(regions))
