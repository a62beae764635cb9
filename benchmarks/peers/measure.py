"""One measured line: ours, a peer's, their ratio, and the aim."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benchmarks.elapsed import Elapsed


@dataclass(frozen=True, slots=True)
class Aim:
    """Of the ratio ours / peer's."""

    bound: Literal["at least", "at most"]
    ratio: float

    def met(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.bound == "at least" else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{self.bound} {self.ratio:g}"


@dataclass(frozen=True, slots=True)
class Measured:
    """``ours`` and ``theirs`` are medians in ``unit``; CPU seconds are means of the same work, all processes of a side.

    Means, because the kernel counts CPU time in ticks of 10 ms.
    """

    row: str
    measure: str
    peer: str
    unit: Literal["rows/s", "s"]
    ours: float
    theirs: float
    aim: Aim | None = None
    ours_cpu_s: float | None = None
    theirs_cpu_s: float | None = None
    runs: int = 1

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def met(self) -> bool | None:
        return None if self.aim is None else self.aim.met(self.ratio)

    def content(self) -> dict[str, Any]:
        """For JSON."""
        aim = None if self.aim is None else str(self.aim)
        return asdict(self) | {"aim": aim, "ratio": self.ratio, "met": self.met}

    @staticmethod
    def of_times(
        row: str, measure: str, peer: str, ours: Sequence[Elapsed], theirs: Sequence[Elapsed], aim: Aim | None = None
    ) -> Measured:
        """Of the seconds of each run."""
        median, fmean = statistics.median, statistics.fmean
        return Measured(
            row, measure, peer, "s", median(s.wall for s in ours), median(s.wall for s in theirs), aim,
            fmean(s.cpu for s in ours), fmean(s.cpu for s in theirs), min(len(ours), len(theirs)),
        )  # fmt: skip


HEADER = (
    "row",
    "measure",
    "peer",
    "lancewal's",
    "peer's",
    "ratio",
    "aim",
    "met",
    "CPU s, lancewal",
    "CPU s, peer",
    "runs",
)


def cells(found: dict[str, Any]) -> list[str]:
    """Of a line with the columns ``HEADER``, from ``Measured.content``."""

    def figure(value: float) -> str:
        return f"{value:,.0f} rows/s" if found["unit"] == "rows/s" else f"{value:.3f} s"

    def cpu(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    met = {None: "-", True: "yes", False: "no"}[found["met"]]
    return [
        found["row"], found["measure"], found["peer"], figure(found["ours"]), figure(found["theirs"]),
        f"{found['ratio']:.2f}", found["aim"] or "-", met, cpu(found["ours_cpu_s"]), cpu(found["theirs_cpu_s"]),
        str(found["runs"]),
    ]  # fmt: skip
