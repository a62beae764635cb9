"""Change feeds of one open table: their ends, their modes, and their rows.

``net``
    At most one change for each key, between the states at both ends.  Either may be the older one.

``commits``
    The ``net`` changes from each version of the merged table to the next.  A merge and its follow-up count as one commit.

``all``
    Every record in the order of its partition, and every other commit, with the rows of its key before and after it.

Guarantees
 1. Both ends become receipts when the feed is planned.  The state at ``start`` is not in the feed, all later changes up to
    ``end`` are.  The feed's receipt is that of ``end``: the next feed starts there.
 2. The rows of ``net``, applied to the state at ``start``, give the state at ``end``, cell by cell.  The rows of ``all`` do so
    in their order, and those of ``commits`` for the merged tables of both ends.
 3. The same two receipts give the same rows whenever they are asked for, or a named error: ``VersionGone``,
    ``OutsideHistoryWindow``, ``RecordsGivenUp``.  A feed never lacks some of its rows without an error.
 4. ``_sequence`` grows with each change of a key, also from one feed to the next of its mode.  In ``net`` it is the sum of
    the positions and the version of ``end``; both never become less.  In ``commits`` it is that of each version, in ``all``
    that of each record or commit.  A restore whose rows are replayed takes positions back, and with them the sequence.
    So does a feed of ``net`` whose end is before its start.
 5. The columns are those of ``end``, identified by their ids.  Rows before a column was added have null in it.

From ``earliest`` the first rows are inserts.  ``net`` has all rows of ``end``.  The other modes have those that were there
before the first record, and begin at the first version of the table, which must still exist.

With a filter the feed is that of the filtered table, with ``columns`` that of a table of these columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Literal, TypeAlias, get_args

import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import TableVersion
from lancewal_core.store.address import same_place
from lancewal_core.table.watermarks import TABLE_UUID
from lancewal_reader.changes.all import all_changes
from lancewal_reader.changes.net import net
from lancewal_reader.changes.pairs import CHANGE_TYPE, change_rows
from lancewal_reader.changes.records import MORE, reached
from lancewal_reader.changes.side import Compared, Side, between_sides
from lancewal_reader.plan.at_version import versions_left
from lancewal_reader.plan.lineage import Lineage
from lancewal_reader.point.at import At, Point, point_of
from lancewal_reader.point.read_options import ReadOptions
from lancewal_reader.point.receipt import Receipt, with_receipt
from lancewal_reader.reading.reads import Chosen, Planned, Reads, Wanted
from lancewal_reader.reading.rows import Rows, RowSource
from lancewal_reader.reading.scan import result_schema, scan_plan

Mode = Literal["net", "commits", "all"]
End: TypeAlias = Point | Literal["now", "earliest"]
MODES: tuple[Mode, ...] = get_args(Mode)
SEQUENCE = "_sequence"
_BACK = "Only mode 'net' goes back in time: use it, or swap start and end"
_FIELDS = (
    pa.field(CHANGE_TYPE, pa.string(), nullable=False),
    pa.field("_commit_version", pa.int64(), nullable=False),
    pa.field("_commit_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field(SEQUENCE, pa.int64(), nullable=False),
)


@dataclass(frozen=True, slots=True)
class PlannedFeed:
    """A planned change feed.  Its start and end are fixed."""

    mode: Mode
    start: Planned | None
    """The state at the start; None: all rows of the end are inserts."""
    end: Planned
    schema: pa.Schema
    """Schema of the feed's rows, with the receipt in its metadata."""
    from_empty: bool = False
    """Whether the rows of ``start`` are inserts of the feed too."""
    compared: Compared = field(default_factory=dict, compare=False)
    """Number of fragments that uses of the feed have compared row by row (``Compared``)."""

    @property
    def receipt(self) -> Receipt:
        """Receipt of the end state, from which the next feed starts."""
        return self.end.receipt

    def showing(self, chosen: Chosen) -> PlannedFeed:
        """Return this feed with the columns and the filter of ``chosen``.  Columns are found by their ids, so
        ``chosen`` may come from another version of the table.
        """
        added = list(self.schema)[len(self.end.schema) :]
        columns = result_schema(chosen.rows, chosen.columns)
        end = replace(self.end, chosen=chosen, schema=columns.with_metadata(self.end.schema.metadata))
        return replace(self, end=end, schema=pa.schema([*columns, *added], self.schema.metadata))


@dataclass(frozen=True, slots=True)
class AddedValues:
    """Values of the additional feed columns, shared by all changes that lead to one state."""

    version: int
    time_us: int
    sequence: int

    def to(self, rows: pa.Table) -> pa.Table:
        """Add these values to rows that do not have their own.  Rows without a change type become inserts."""
        if CHANGE_TYPE not in rows.column_names:
            rows = rows.append_column(_FIELDS[0], pa.repeat(pa.scalar("insert"), rows.num_rows))
        for own, value in zip(_FIELDS[1:], (self.version, self.time_us, self.sequence), strict=True):
            if own.name not in rows.column_names:
                column = pa.repeat(pa.scalar(value, pa.int64()).cast(own.type), rows.num_rows)
                rows = rows.append_column(own, column)
        return rows


class Feeds:
    """Planner and reader of the change feeds of one open table.  Threads may share it."""

    def __init__(self, reads: Reads) -> None:
        self.reads = reads

    def plan(self, wanted: Wanted, start: object, end: object, mode: object) -> PlannedFeed:
        """Plan a feed with the columns and the filter of ``wanted``.

        Raises ``InvalidInput`` for a wrong argument, or for an end before the start, which is allowed only in the mode
        ``net``.
        """
        checked = _mode_of(mode)
        from_, to = _end_of(start, "start"), _end_of(end, "end")
        if to == "earliest":
            raise InvalidInput("end='earliest': nothing lies before it. Give a point, or 'now'")
        if from_ == "earliest":
            last = self.planned(wanted, to, checked)
            first = None if checked == "net" else self._first(wanted, checked)
            return replace(self.between(first, last, checked), from_empty=True)
        if from_ == to:
            last = self.planned(wanted, to, checked)
            return self.between(last, last, checked)
        first = self.planned(keys_alone(self.reads, wanted), from_, checked)
        return self.between(first, self.planned(wanted, to, checked), checked)

    def between(self, start: Planned | None, end: Planned, mode: Mode) -> PlannedFeed:
        """Return the feed between two planned states.

        Raises ``InvalidInput`` if the end lacks records that the start has, unless the mode is ``net``.  Raises it too
        if a column of the table has the name of a column that the feed adds.
        """
        if start is not None and mode != "net":
            _check_order(start.receipt, end.receipt)
        fields = _FIELDS if mode != "all" else (*_FIELDS, *(own for own in MORE if own.name != SEQUENCE))
        taken = [own.name for own in fields if own.name in end.schema.names]
        if taken:
            raise InvalidInput(
                f"mode {mode!r} adds columns {taken}, which the table has too: leave them out by `columns`"
            )
        return PlannedFeed(mode, start, end, pa.schema([*end.schema, *fields], end.schema.metadata))

    def _first(self, wanted: Wanted, mode: Mode) -> Planned:
        """Plan the state of the table before its first record."""
        context = self.reads.context
        for version in sorted(context.table.versions()):
            if TABLE_UUID not in context.table.at(version).config:
                continue
            if not context.watermarks.at(version).regions:
                receipt = Receipt(context.contract.uuid, version, {}, self.reads.place)
                return self.planned(keys_alone(self.reads, wanted), receipt, mode)
            break
        raise versions_left(context, f"start='earliest' with mode {mode!r}: the first version of the table is gone")

    def again(self, planned: PlannedFeed) -> tuple[PlannedFeed, Iterator[pa.RecordBatch]]:
        """Return the feed and its rows, which are read on demand."""
        start, end = planned.start, planned.end
        by_version = planned.mode == "commits" and start is not None
        tables = self._commits(planned) if by_version else self._changes(planned, start, end)
        if planned.from_empty and start is not None:
            tables = chain(self._changes(planned, None, replace(start, chosen=end.chosen)), tables)
        return planned, _batches(tables, planned.schema)

    def planned(self, wanted: Wanted, end: End, mode: Mode) -> Planned:
        """Plan the state at one end of a feed.  In the mode ``commits``, the state is the merged table at that end's
        version.
        """
        merged = mode == "commits"
        if isinstance(end, str):
            return self.reads.plan(replace(wanted, read=ReadOptions("eventual" if merged else "strong")))
        if merged and isinstance(end, Receipt) and self._is_ours(end):
            end = At.version(end.version)  # whatever could stand in for it
        found = self.reads.plan(replace(wanted, read=ReadOptions(at=end)))
        if merged and found.plan.branch is None:
            return self.reads.plan(replace(wanted, read=ReadOptions(at=At.version(found.receipt.version))))
        # Another version may stand in for the receipt's own.
        return (
            replace(found, receipt=end, schema=with_receipt(found.schema, end)) if isinstance(end, Receipt) else found
        )

    def _is_ours(self, receipt: Receipt) -> bool:
        return receipt.table_uuid == self.reads.contract.uuid and same_place(receipt.place, self.reads.place)

    def added(self, state: Planned) -> AddedValues:
        """Return the added values of the changes that lead to this state.  They come from its version, or from a
        version with the same rows.
        """
        table, plan = self.reads.context.table, state.plan
        on = plan.branch
        made = table.commit_time(plan.version) if on is None else table.branch(on.name).commit_time(on.version)
        return AddedValues(int(plan.version), made * 1000, reached(state.receipt))

    def divided(self, planned: PlannedFeed, parts_max: int) -> list[PlannedFeed]:
        """Divide a feed of the mode ``commits`` into at most ``parts_max`` feeds, each with the commits of a range of
        versions.
        """
        steps = list(self._steps(planned))
        count = min(len(steps), parts_max)
        if not count:
            return [planned] if planned.from_empty else []
        cuts = [len(steps) * at // count for at in range(count + 1)]
        parts = [_part(planned, steps[begin][0], steps[end - 1][1]) for begin, end in pairwise(cuts)]
        return [replace(parts[0], start=planned.start, from_empty=planned.from_empty), *parts[1:]]

    def _changes(self, feed: PlannedFeed, start: Planned | None, end: Planned) -> Iterator[pa.Table]:
        """Yield the changes between two states: all of them in the mode ``all``, else the net changes."""
        every = feed.mode == "all"

        def rows(before: Side | None, after: Side) -> Iterator[pa.Table]:
            chosen = end.chosen
            if before is None:
                found = scan_plan(after, chosen.columns, chosen.filter)
                tables: Iterator[pa.Table] = (pa.Table.from_batches([rows]) for rows in found)
            else:
                names = [name for name in chosen.rows.table.names if name in {*chosen.names, *chosen.rows.primary_key}]
                after = replace(after, compared=feed.compared)
                pairs = all_changes(before, after, names) if every else net(before, after, names)
                # Without a filter ``net`` has left out all pairs that are the same.
                with_same = every or chosen.filter is None
                shown = (change_rows(some, chosen.columns, chosen.filter, with_same) for some in pairs if len(some))
                tables = (rows for rows in shown if rows.num_rows)
            added = self.added(replace(end, plan=after.plan))
            tables = map(added.to, tables)
            first = next(tables, None)  # objects that have vanished since the plan show here
            return iter(()) if first is None else chain((first,), tables)

        return between_sides(self.reads, start, end, rows)

    def _commits(self, planned: PlannedFeed) -> Iterator[pa.Table]:
        for before, after in self._steps(planned):
            last = replace(self._at_version(planned.end.wanted, after), chosen=planned.end.chosen)
            yield from self._changes(planned, self._at_version(keys_alone(self.reads, last.wanted), before), last)

    def _steps(self, planned: PlannedFeed) -> Iterator[tuple[int, int]]:
        context = self.reads.context
        assert planned.start is not None  # in the mode ``commits`` there is one
        return Lineage.of(context).steps(planned.start.receipt.version, planned.end.receipt.version)

    def _at_version(self, wanted: Wanted, version: int) -> Planned:
        return self.reads.plan(replace(wanted, filter=None, columns=None, read=ReadOptions(at=At.version(version))))


class ChangeRows(Rows):
    """A planned change feed with a fixed start and end.  Each use reads the changes again."""

    def __init__(self, feeds: RowSource, planned: PlannedFeed) -> None:
        super().__init__(feeds, planned)
        self._compared = planned.compared

    @property
    def compared_fragments(self) -> int:
        """Number of fragments that were compared row by row so far, because no commit shows where their rows went.

        The number is 0 before the first use, and if all compactions could be followed.  A fragment counts once in each
        version.
        """
        return sum([*self._compared.values()])


def keys_alone(reads: Reads, wanted: Wanted) -> Wanted:
    """Return the same read with only the first primary key column."""
    return replace(wanted, columns=reads.contract.primary_key[:1], filter=None)


def _part(planned: PlannedFeed, low: int, high: int) -> PlannedFeed:
    """Return the part of a feed of the mode ``commits`` from version ``low`` to version ``high``.  Only the versions
    of its ends count, not their positions.
    """

    def at(version: int) -> Planned:
        return replace(planned.end, receipt=replace(planned.end.receipt, version=TableVersion(version)))

    return replace(planned, start=at(low), end=at(high), from_empty=False)


def _mode_of(given: object) -> Mode:
    for mode in MODES:
        if given == mode:
            return mode
    raise InvalidInput(f"mode {given!r} is unknown: use {' or '.join(map(repr, MODES))}")


def _end_of(given: object, name: str) -> End:
    if given == "now":
        return "now"
    if given == "earliest":
        return "earliest"
    try:
        point = point_of(given)  # type: ignore[arg-type] # what a user gave
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}. 'now' is taken too, and as start also 'earliest'") from error
    if point is None:
        raise InvalidInput(f"{name}: expected a point or 'now'. The start may also be 'earliest'")
    return point


def _check_order(start: Receipt, end: Receipt) -> None:
    """Raise ``InvalidInput`` unless the end is at or after the start, by version and by each position."""
    if end.version < start.version:
        raise InvalidInput(
            f"the end comes before the start: the end is table version {end.version}, the start {start.version}. "
            f"{_BACK}"
        )
    for region, position in sorted(start.positions.items()):
        reached = end.positions.get(region, 0)
        if end.positions and reached < position:
            raise InvalidInput(
                f"the end comes before the start: in partition {region.topic}-{region.partition} the end is at position "
                f"{reached}, the start at {position}. {_BACK}"
            )


def _batches(tables: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for rows in tables:
        yield from with_all(rows, schema).to_batches()


def with_all(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Add the feed columns that ``rows`` lack, as nulls.  An insert of the initial state comes from no record, so its
    record columns are null.
    """
    for own in schema:
        if own.name not in rows.column_names:
            rows = rows.append_column(own, pa.nulls(rows.num_rows, own.type))
    return rows.select(schema.names).cast(schema)
