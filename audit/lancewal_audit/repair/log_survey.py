"""Survey every log of a table by a listing: its segments, their entries of some regions, and damaged objects.

Only an operator's tool may use a listing: services find logs through the region states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lancewal_audit.repair.context import RepairContext
from lancewal_core.errors import ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, Position, Region, Sequence
from lancewal_core.process.progress import step
from lancewal_core.rows.record_times import RecordTimes
from lancewal_core.store.object_store import ObjectInfo
from lancewal_core.wal.entry import EntryHeader
from lancewal_core.wal.segment import Fence, Trailer
from lancewal_core.wal.tail import read_trailer


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of a region, and the log and segment that hold it."""

    log: LogId
    sequence: Sequence
    first: Position
    next: Position
    owner: str
    contract_version: int
    record_times: RecordTimes | None
    """Record times of the entry's rows; None if it has no rows."""


@dataclass(frozen=True, slots=True)
class LogSurvey:
    """Survey of one log.  ``sequences``: numbers of its objects, ascending, including the fence and damaged segments."""

    log: LogId
    sequences: tuple[Sequence, ...]
    fence: Sequence | None
    """Number of the fence that ends the log; None if the log has no fence."""
    damaged: Mapping[Sequence, str]
    """Numbers of objects whose trailer cannot be read, each with the reason."""
    pieces: Mapping[Region, tuple[Piece, ...]]
    """Entries before the fence by region, in the order of the log."""

    @property
    def holes(self) -> list[str]:
        """A sentence for each missing segment between existing ones.  Segments below the first may have been trimmed."""
        numbers = sorted(set(range(self.sequences[0], self.behind)) - set(self.sequences))
        return [f"{paths.wal_segment(self.log, Sequence(n))} is missing" for n in numbers]

    @property
    def behind(self) -> Sequence:
        """Number that follows that of the log's last object."""
        return Sequence(self.sequences[-1] + 1)

    def joined(self, one: Piece, other: Piece) -> bool:
        """Return whether every segment from the one of ``one`` to the later one of ``other`` can be read."""
        span = range(one.sequence, other.sequence + 1)
        return other.sequence > one.sequence and all(n in self.sequences and n not in self.damaged for n in span)


def survey_logs(context: RepairContext, regions: Collection[Region]) -> dict[LogId, LogSurvey]:
    """Return a survey of every log, with the entries of these regions."""
    by_log: dict[LogId, dict[Sequence, ObjectInfo]] = {}
    for info in context.store.list(paths.WAL):
        parsed = paths.parse_wal_segment(info.key)
        if parsed is not None:
            by_log.setdefault(parsed[0], {})[parsed[1]] = info
    with step("reading logs", len(by_log), "logs") as told:
        logs = told.counting(sorted(by_log.items()))
        return {log: _survey(context, log, objects, regions) for log, objects in logs}


def _survey(
    context: RepairContext, log: LogId, objects: Mapping[Sequence, ObjectInfo], regions: Collection[Region]
) -> LogSurvey:
    sequences = tuple(sorted(objects))
    read = context.tasks.map(lambda n: _trailer(context, objects[n]), sequences)
    damaged: dict[Sequence, str] = {}
    pieces: dict[Region, list[Piece]] = {region: [] for region in regions}
    fence: Sequence | None = None
    for sequence, found in zip(sequences, read, strict=True):
        match found:
            case str():
                damaged[sequence] = found
            case Fence():
                fence = sequence
                break
            case Trailer():
                for entry in found.entries:
                    if entry.region in pieces:
                        pieces[entry.region].append(_piece(found, entry))
    return LogSurvey(log, sequences, fence, damaged, {region: tuple(some) for region, some in pieces.items()})


def _piece(trailer: Trailer, entry: EntryHeader) -> Piece:
    return Piece(
        trailer.log,
        trailer.sequence,
        entry.first,
        entry.next,
        trailer.writer,
        entry.contract_version,
        entry.record_times,
    )


def _trailer(context: RepairContext, info: ObjectInfo) -> Trailer | Fence | str:
    """Return the trailer of a listed object.  If it cannot be read, return the reason."""
    if not info.size:
        return f"{info.key} is empty"
    try:
        return read_trailer(context.store, info) or f"{info.key} is missing"
    except ObjectCorrupt as error:
        return str(error)
