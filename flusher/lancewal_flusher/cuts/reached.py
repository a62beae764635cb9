"""Wait until the positions of a cut are durable in every table.

Guarantees
 1. The wait is over once a strong read of each table sees up to its positions.  Records above them do not matter.
 2. All tables have the same deadline, however many of them lag.
 3. If a table misses the deadline, the error names the tables and partitions that lag, up to five of each.  Tables
    with stopped partitions come first, then those whose ingest is paused, those that did not move at all, and those
    that are only late.  Whether a table moved is told by its positions when the wait began, even if other tables
    occupied the threads meanwhile.

A partition counts as stopped if the table's newest version says so, with the reason.  Other reasons for a stop are
known only to the owner's process.  Such a partition counts as one that did not move.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lancewal_core.errors import LancewalError, TokenTimeout, or_error, some_of
from lancewal_core.names.ids import Position
from lancewal_core.process.tasks import Tasks
from lancewal_core.table.control import Service, read_control, until_text
from lancewal_flusher.cuts.positions import CutAt, CutMember, durable_now, durable_of

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Lag:
    """A table that has not reached its positions.  ``lacks``: for each partition that lags, the position reached and
    the one wanted.  ``rank``: the order in messages, lowest first.
    """

    name: str
    lacks: Mapping[int, tuple[Position, Position]]
    why: str
    rank: int
    stopped: Collection[int] = ()
    """Partitions of ``lacks`` that take no more records."""

    def __str__(self) -> str:
        return f"{self.name} ({self.why}): {self.partitions}"

    @property
    def partitions(self) -> str:
        """Text that lists the partitions that lag, stopped ones first."""
        order = sorted(self.lacks, key=lambda p: (p not in self.stopped, p))
        return some_of([self._one(p) for p in order], _NAMED)

    def _one(self, partition: int) -> str:
        reached, wanted = self.lacks[partition]
        stopped = " (stopped)" if partition in self.stopped else ""
        return f"partition {partition} at {reached} of {wanted}{stopped}"


def await_reached(members: Sequence[CutMember], at: CutAt, timeout_s: float, tasks: Tasks) -> None:
    """Wait at most ``timeout_s`` seconds until all tables have reached their positions.

    Raises ``TokenTimeout`` if a table still lags.  Errors of strong reads are raised too, with the table's name.
    """
    clock = members[0].context.clock
    until = clock.monotonic() + timeout_s

    first = dict(zip((member.name for member in members), tasks.map(durable_of, members), strict=True))
    waiting = [member for member in members if lacking(first[member.name], at.of[member.name])]

    def wait(member: CutMember) -> Lag | None:
        return _await(member, at.of[member.name], first[member.name], max(0.0, until - clock.monotonic()))

    answers = tasks.map(lambda member: or_error(lambda: wait(member)), waiting)
    behind: list[Lag] = []
    for member, answer in zip(waiting, answers, strict=True):
        if isinstance(answer, LancewalError):
            raise member.named(answer) from answer
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


def lacking(reached: Mapping[int, Position], wanted: Mapping[int, Position]) -> dict[int, tuple[Position, Position]]:
    """Return the partitions that lag, each with the position reached and the one wanted."""
    return {p: (reached[p], at) for p, at in wanted.items() if reached[p] < at}


def lag_of(
    member: CutMember, wanted: Mapping[int, Position], first: Mapping[int, Position] | None, now: Mapping[int, Position]
) -> Lag | None:
    """Return the lag of a table, with its cause; None if the table has reached its positions.

    ``now``: the positions reached.  ``first``: positions reached earlier, which show whether the table moves, or
    None.
    """
    lacks = lacking(now, wanted)
    if not lacks:
        return None
    in_force = member.context.watermarks.newest()[1]
    regions = {region.partition: region for region in member.contract.regions}
    stopped = {p: why for p in sorted(lacks) if (why := in_force.why_stopped(regions[p])) is not None}
    if stopped:
        reason = next(iter(stopped.values()))
        return Lag(member.name, lacks, f"stopped by {reason.kind}: {reason}", 0, stopped)
    control = read_control(member.context.store, member.contract.making)
    paused = control.paused(Service.INGEST, member.context.clock.now_ms())
    if paused is not None:
        return Lag(member.name, lacks, f"ingest is paused {until_text(paused)}", 1)
    if first is not None and all(now[partition] == first[partition] for partition in lacks):
        return Lag(member.name, lacks, "it has not moved", 2)
    return Lag(member.name, lacks, "it is late", 3)


def _await(
    member: CutMember, wanted: Mapping[int, Position], first: Mapping[int, Position], timeout_s: float
) -> Lag | None:
    """Wait until one table reaches ``wanted``.  Return its lag if it does not in time.  ``first``: the positions
    reached before the wait.
    """
    from lancewal_reader.point.read_options import read_options
    from lancewal_reader.point.token import Token
    from lancewal_reader.reading.reads import wanted_of

    topic = member.contract.topic
    token = Token({(topic, partition): at for partition, at in wanted.items() if at})
    try:
        member.reads.plan(wanted_of(None, None, read_options(at_least=token, timeout_s=timeout_s)))
        return None
    except TokenTimeout:
        return lag_of(member, wanted, first, durable_now(member))
