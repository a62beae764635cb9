"""Wait until the positions of a cut are durable in every table.

Guarantees
 1. It returns once a strong read of each table sees up to its positions.  What is above them does not matter.
 2. If a table does not come so far in time, the error names each table and partition that lags.  Tables whose ingest is paused
    come first, then those that did not move at all, then those that are only late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lancewal_core.errors import LancewalError, TokenTimeout, or_error, some_of
from lancewal_core.names.ids import Position
from lancewal_core.process.tasks import Tasks
from lancewal_core.table.control import Service, read_control, until_text
from lancewal_flusher.cuts.positions import CutAt, CutMember, durable_now

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Lag:
    """A table that is behind its positions.  ``lacks`` has the positions that it reached and should, by partition."""

    name: str
    lacks: Mapping[int, tuple[Position, Position]]
    why: str
    rank: int

    def __str__(self) -> str:
        named = [f"partition {p} at {reached} of {wanted}" for p, (reached, wanted) in sorted(self.lacks.items())]
        return f"{self.name} ({self.why}): {some_of(named, _NAMED)}"


def await_reached(members: Sequence[CutMember], at: CutAt, timeout_s: float, tasks: Tasks) -> None:
    """Wait at most ``timeout_s`` seconds (module docstring).

    ``TokenTimeout``: a table lags.  Errors of strong reads are raised too."""
    answers = tasks.map(lambda member: or_error(lambda: _await(member, at.of[member.name], timeout_s)), members)
    behind: list[Lag] = []
    for answer in answers:
        if isinstance(answer, LancewalError):
            raise answer
        behind += [] if answer is None else [answer]
    if behind:
        behind.sort(key=lambda lag: (lag.rank, lag.name))
        more = f"; and {len(behind) - _NAMED} more" if len(behind) > _NAMED else ""
        raise TokenTimeout(
            f"after {timeout_s:g} s these tables lack records that are in Kafka: "
            f"{'; '.join(map(str, behind[:_NAMED]))}{more}. Let them catch up (`lancewal status` says what holds them up), "
            "wait longer (--wait), or leave them out (--tables)",
            tables={lag.name: dict(lag.lacks) for lag in behind},
        )


def _await(member: CutMember, wanted: Mapping[int, Position], timeout_s: float) -> Lag | None:
    """Wait for one table; return its lag if it does not come so far in time."""
    from lancewal_reader.point.read_options import read_options
    from lancewal_reader.point.token import Token
    from lancewal_reader.reading.reads import wanted_of

    first = durable_now(member)
    if not _lacking(first, wanted):
        return None
    topic = member.contract.topic
    token = Token({(topic, partition): at for partition, at in wanted.items() if at})
    try:
        member.reads.plan(wanted_of(None, None, read_options(at_least=token, timeout_s=timeout_s)))
        return None
    except TokenTimeout:
        pass
    now = durable_now(member)
    lacks = _lacking(now, wanted)
    if not lacks:
        return None
    control = read_control(member.context.store, member.contract.making)
    paused = control.paused(Service.INGEST, member.context.clock.now_ms())
    if paused is not None:
        return Lag(member.name, lacks, f"ingest is paused {until_text(paused)}", 0)
    if all(now[partition] == first[partition] for partition in lacks):
        return Lag(member.name, lacks, "it has not moved", 1)
    return Lag(member.name, lacks, "it is late", 2)


def _lacking(reached: Mapping[int, Position], wanted: Mapping[int, Position]) -> dict[int, tuple[Position, Position]]:
    return {p: (reached[p], at) for p, at in wanted.items() if reached[p] < at}
