"""Why a flusher is not ready, line by line.

It is ready once a round of merging has ended well.  The store is asked beside the loop: whatever that waits for, silence is
named.  A pause is no problem: it is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancewal_core.process.health import Problem
from lancewal_core.process.silence import SilenceWatch
from lancewal_core.process.start import Start
from lancewal_core.table.control import ControlReader
from lancewal_flusher.service.turns import Turns

NO_ROUND_YET = Problem("starting", "no round has ended yet")


class FlusherProbes:
    """Asked by other threads, from the start on."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._begun: tuple[Turns, ControlReader, SilenceWatch] | None = None

    def of(self, turns: Turns, control: ControlReader, silence: SilenceWatch) -> None:
        """The service has begun."""
        self._begun = turns, control, silence

    def waits(self) -> bool:
        """Whether the loop may stand still for what a restart does not mend."""
        return self._begun is None or self._begun[2].problem is not None

    def beside(self) -> Sequence[tuple[str, float]]:
        """Return what is under way beside the loop, and for how many seconds."""
        return () if self._begun is None else self._begun[0].beside()

    def problems(self) -> Sequence[Problem]:
        """Why it is not ready."""
        if self._begun is None:
            return [self._start.problem or Problem("starting", "the service begins its work")]
        turns, control, silence = self._begun
        found = list(turns.problems())
        if silence.problem is not None:
            found.append(silence.problem)
        if control.paused is not None and NO_ROUND_YET in found:
            found.remove(NO_ROUND_YET)
        if control.problem is not None:
            found.append(Problem.of(control.problem, "control cannot be read"))
        return found
