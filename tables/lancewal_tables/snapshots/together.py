"""Snapshots of several tables that the same topic feeds, at the same positions.

Guarantees
 1. All snapshots are made at the same positions, so a record is in each of them or in none.  By default these are the highest
    positions that are durable in every table.  A record that was durable in all tables when the command began is not missing.
 2. If one snapshot cannot be made, the snapshots that this call has made are dropped again, and the error is raised.

If a table lags by more than the history window of another table, the other table's snapshot fails with
``OutsideHistoryWindow`` or ``VersionGone``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import combinations
from typing import TYPE_CHECKING

from lancewal_core.errors import InvalidInput, LancewalError
from lancewal_core.store.address import same_place
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.cuts.positions import CutMember, durable
from lancewal_flusher.garbage.snapshots import drop_made
from lancewal_tables.snapshots.make import Made, make_snapshot

if TYPE_CHECKING:
    from lancewal_reader.point.at import AtPositions, Point
    from lancewal_reader.reading.reads import Reads

Opened = tuple[FlusherContext, "Reads"]


def make_together(
    opened: Sequence[Opened], name: str, at: Point | None = None, for_ms: int | None = None
) -> list[Made]:
    """Make one snapshot of each table, as the module docstring says, and return them in the order of ``opened``."""
    wanted = common_point(opened, at)
    made: list[Made] = []
    try:
        for context, reads in opened:
            made.append(make_snapshot(context, reads, name, wanted, for_ms))
    except BaseException:
        for (context, _), done in zip(opened, made, strict=False):
            with suppress(LancewalError):
                drop_made(context.table, done.snapshot)
        raise
    return made


def common_point(opened: Sequence[Opened], at: Point | None) -> Point | None:
    """Return the point at which all snapshots are to be made.

    For one table this is ``at``.  For several tables without ``at``, the point has the highest positions that are
    durable in every table.  Raises ``InvalidInput`` if a table is named twice, the tables follow different topics, or
    several tables get another point than positions.
    """
    from lancewal_reader.point.at import AtPositions

    if len(opened) == 1:
        return at
    _check_apart(opened)
    _check_same_topic(opened)
    if at is None:
        return _durable_in_all(opened)
    if not isinstance(at, AtPositions):
        raise InvalidInput("for several tables, --at must be positions:..., which mean the same in each table")
    return at


def _check_apart(opened: Sequence[Opened]) -> None:
    for (_, one), (_, other) in combinations(opened, 2):
        if same_place(one.place, other.place):
            raise InvalidInput(f"{one.uri} and {other.uri} are one table: name it once")


def _check_same_topic(opened: Sequence[Opened]) -> None:
    first = opened[0][0].contract
    for context, _ in opened[1:]:
        other = context.contract
        if (other.topic, other.topic_id, other.partitions) != (first.topic, first.topic_id, first.partitions):
            raise InvalidInput(
                f"tables of topics {first.topic} ({first.topic_id}, {first.partitions} partitions) and {other.topic} "
                f"({other.topic_id}, {other.partitions} partitions) share no positions: make their snapshots one by one"
            )


def _durable_in_all(opened: Sequence[Opened]) -> AtPositions:
    from lancewal_reader.point.at import At

    members = [CutMember(reads.uri, context, reads) for context, reads in opened]
    return At.positions(durable(members, opened[0][0].tasks).of[members[0].name])
