"""Reads of one open table, by any number of threads: their plans, and the rows of a plan.

Guarantees
 1. A read of the newest state is not older than another such read whose plan was made before it began, neither in version
    nor in any position.  If the store shows an older state, the error is ``StoreInconsistent``.  Concurrent reads do not
    wait for one another.
 2. Each use of a planned read returns the same rows, or a named error says why that is impossible.  If objects of the
    plan have vanished, the read is planned again at its receipt, never at a newer state.
 3. A read that finds a newer contract continues with that contract.  The caches hold only immutable values.
 4. A read with ``max_staleness_s`` uses the newest strong plan of this open table again, if planning it began less
    than so many seconds ago.  The plan must not be older than any plan finished so far, so that guarantee 1 holds.
    If an object of that plan has vanished, the read makes another plan like any other read.

``begin`` makes a plan and begins to read at once.  If objects of the plan vanish before the first row, the read is
planned again and may be newer, since nobody has its receipt yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from threading import Lock
from typing import NoReturn, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import (
    ContractChanged,
    InvalidInput,
    ObjectMissing,
    OutsideHistoryWindow,
    PlanRetriesExhausted,
    PlanStale,
    RegionConflict,
    SnapshotMissing,
    StoreInconsistent,
    TableReplaced,
    VersionGone,
)
from lancewal_core.names.ids import Position, Region
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import Contract, read_contract
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.watermarks import TABLE_UUID
from lancewal_reader.forms.expressions import sql_of
from lancewal_reader.plan.at_least import Goal, check_rejected, plan_at_least
from lancewal_reader.plan.at_point import order_not_told, plan_at_point
from lancewal_reader.plan.at_positions import check_regions, receipt_at_positions
from lancewal_reader.plan.strong import (
    PLANS_MAX,
    PlanContext,
    ReadPlan,
    check_contract,
    pin_newest,
    plan_eventual,
    plan_strong,
)
from lancewal_reader.point.at import At, AtCut, AtSnapshot, Point, read_by
from lancewal_reader.point.read_options import Consistency, ReadOptions, read_options
from lancewal_reader.point.receipt import Receipt, with_receipt
from lancewal_reader.point.token import Least
from lancewal_reader.reading.filter import check_filter
from lancewal_reader.reading.lookup import KeyLookup, count_plan, deltas_of, lookup_plan
from lancewal_reader.reading.result_columns import check_no_blobs_asked, check_values, columns_of_plan
from lancewal_reader.reading.scan import OpenState, batch_rows, left_out, result_schema, scan_plan
from lancewal_reader.reading.shown_version import shown_version
from lancewal_reader.unmerged.left_out import LeftOut, with_left_out
from lancewal_reader.unmerged.load import DeltaContext

T = TypeVar("T")

_LOOKS_MAX = 3
"""Largest number of times that a read is planned again because records of keys in conflict may be merged by now."""
_VANISHED = (PlanStale, ObjectMissing, StoreInconsistent, VersionGone)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Arguments of a read: columns, rows and read options.  The columns are checked when the read is planned."""

    columns: tuple[str, ...] | None
    """Names of the requested columns, in the order of the result; None: all columns."""
    filter: str | None
    read: ReadOptions
    keys: pa.Table | None = None
    """Distinct primary keys of the rows to read; None: rows of all keys."""
    region_key: bytes | None = None
    """Encoded region key that all wanted rows have; None: any.  Unmerged rows that came through other partitions than
    the contract gives this key are not read.
    """


@dataclass(frozen=True, slots=True)
class Chosen:
    """The columns and the filter of a read, checked against the columns of its state."""

    rows: RowSchema
    """All columns of the state that is read, requested or not."""
    columns: tuple[str, ...]
    filter: str | None
    """Condition for Lance, with the column names of ``rows``; None: no filter."""

    @staticmethod
    def of(rows: RowSchema, wanted: Wanted) -> Chosen:
        """Check the columns and the filter of a read.  Raises ``InvalidInput`` if the state does not have such a
        column.
        """
        return Chosen(rows, columns_of(rows.table, wanted.columns), check_filter(rows.table, wanted.filter))

    @property
    def names(self) -> Collection[str]:
        """Names of the columns that the read needs; a filter may name any column."""
        return self.rows.table.names if self.filter is not None else self.columns


@dataclass(frozen=True, slots=True)
class Planned:
    """One planned read."""

    wanted: Wanted
    plan: ReadPlan
    receipt: Receipt
    chosen: Chosen
    schema: pa.Schema
    """Schema of the rows that the read returns, with the receipt in its metadata."""

    def with_columns(self, columns: tuple[str, ...]) -> Planned:
        """Return the same planned read with other columns."""
        schema = result_schema(self.chosen.rows, columns).with_metadata(self.schema.metadata)
        return replace(self, chosen=replace(self.chosen, columns=columns), schema=schema)


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest version and positions that reads have seen."""

    version: int = 0
    positions: Mapping[Region, Position] = field(default_factory=dict)

    def check(self, plan: ReadPlan, claims: bool) -> None:
        """Raise ``StoreInconsistent`` if the plan is older than what earlier reads have seen.  ``claims``: whether the
        plan has positions to compare; if not, only versions are compared.
        """
        cut = plan.cut if claims else self.positions
        back = [r.name for r, p in self.positions.items() if cut.get(r, Position(0)) < p]
        if plan.version < self.version or back:
            raise StoreInconsistent(
                f"the store shows an older state than an earlier read did: table version {plan.version} after {self.version}, "
                f"lower positions in partitions {back[:3]}"
            )

    def reached_by(self, plan: ReadPlan) -> bool:
        """Whether a strong plan is at least as new as this state."""
        cut = plan.cut
        return plan.version >= self.version and all(cut.get(r, Position(0)) >= p for r, p in self.positions.items())

    def with_plan(self, plan: ReadPlan, claims: bool) -> Newest:
        """Return the newer of this state and the plan's state, region by region.  Another thread's read may have
        advanced this state since the plan began.
        """
        if not claims:
            return Newest(plan.version) if plan.version >= self.version else self
        cut = plan.cut
        both = {r: max(cut.get(r, Position(0)), self.positions.get(r, Position(0))) for r in cut | dict(self.positions)}
        return Newest(max(plan.version, self.version), both)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A strong plan, the monotonic time at which it was begun, and the contract by which it was made."""

    plan: ReadPlan
    began: float
    contract: Contract


class Reads:
    """Planner and runner of the reads of one open table."""

    def __init__(self, uri: str, place: str, context: DeltaContext) -> None:
        self.uri = uri
        self.place = place
        self._lock = Lock()
        """Lock of the fields below, which are immutable values.  It is not held during other calls."""
        self.context = context
        self._lookup = KeyLookup(context, uri)
        self._newest: dict[Consistency, Newest] = {}
        self._kept: _Kept | None = None
        self._shown: tuple[Contract, RowSchema] | None = None
        """Contract and columns of the last read without ``at``; None: there was none."""
        self._told = LeftOut()
        """Keys left out according to the last log event.  Repeated reads do not log the same again."""

    def __reduce__(self) -> NoReturn:
        raise InvalidInput(
            "an open table and its rows cannot be pickled: they have threads and connections of this process. Send the "
            "table's address, and open it there. With str(rows.receipt) as `at` it reads the same rows"
        )

    @property
    def contract(self) -> Contract:
        return self.context.contract

    @property
    def schema(self) -> pa.Schema:
        """All columns of the last result that was read without ``at``.  Before the first such result,
        and after the columns have changed: all columns of the contract."""
        contract, shown = self.context.contract, self._shown
        return (shown[1] if shown is not None and shown[0] is contract else contract.rows).table

    def plan(self, wanted: Wanted) -> Planned:
        """Plan the read without reading rows.  If rows do not tell their partition, the unmerged rows are loaded, to
        find keys in conflict.
        """
        if wanted.keys is None:
            return self._make(wanted, begin=False)[0]
        return self._lookup.beside(lambda: self._make(wanted, begin=False)[0], wanted.keys)

    def receipt_at(self, positions: Mapping[Region, Position]) -> Receipt:
        """Return the receipt of a read at durable positions, one for each region.

        Unmerged rows are read only if the receipt must count the rows that the read leaves out.  Raises the errors of a
        read at these positions, and ``PartitionCountChanged`` if the newest contract has other regions.
        """
        if not self.context.contract.rows_tell_partition:
            by_partition = {region.partition: at for region, at in positions.items()}
            receipt = self.plan(wanted_of(None, None, read_options(at=At.positions(by_partition)))).receipt
            check_regions(self.context.contract, positions)  # planning may have taken up a newer contract
            return receipt
        try:
            return self._receipt_at(positions)
        except ContractChanged:
            self._take_up_contract()
            return self._receipt_at(positions)

    def _receipt_at(self, positions: Mapping[Region, Position]) -> Receipt:
        context = self.context
        pinned, in_force = pin_newest(context)
        check_table_uuid(pinned, context.contract, self.uri)
        return receipt_at_positions(context, self.place, ReadPlan(pinned.version, in_force, ()), positions)

    def begin(self, wanted: Wanted) -> tuple[Planned, Iterator[pa.RecordBatch]]:
        """Plan the read, and return the plan with its rows.  The first batch is read at once."""
        return self._make(wanted, begin=True)

    def again(self, planned: Planned) -> tuple[Planned, Iterator[pa.RecordBatch]]:
        """Read the rows of a planned read again.  The returned plan may be a new one at the same receipt."""
        planned, rows = self._by(
            planned,
            lambda state: self._rows(state, planned.wanted, planned.chosen),
            now=planned.wanted.keys is not None,  # all of these are read before that ends
        )
        return planned, _described(rows, planned.schema)

    def count(self, wanted: Wanted) -> tuple[Planned, int]:
        """Return the read, and the number of its rows."""
        if wanted.filter is None:
            return self.at_once(wanted, lambda planned: (planned, self.using(planned, count_plan, now=True)))
        planned, rows = self.begin(wanted)
        return planned, sum(batch.num_rows for batch in rows)

    def at_once(self, wanted: Wanted, use: Callable[[Planned], T]) -> T:
        """Plan the read, and return the result of ``use`` for the plan.

        With ``max_staleness_s`` an earlier plan may be used.  If it can no longer be read, ``use`` is called again with
        a new plan.
        """
        try:
            return use(self.plan(wanted))
        except (VersionGone, OutsideHistoryWindow):
            if wanted.read.max_staleness_s is None:
                raise
        return use(self.plan(replace(wanted, read=replace(wanted.read, max_staleness_s=None))))

    def using(self, planned: Planned, use: Callable[[OpenState], T], *, now: bool = False) -> T:
        """Call ``use`` with the planned state, and return its result.  If objects of the plan have vanished, make a new
        plan for the same receipt, and call ``use`` again.

        ``now``: ``use`` reads all that it needs before it returns.  Then the table version that planning opened is used
        again.
        """
        return self._by(planned, use, now=now)[1]

    def _by(self, planned: Planned, use: Callable[[OpenState], T], *, now: bool = False) -> tuple[Planned, T]:
        """Return the read, and the result of ``use`` for its plan.  If objects of the plan have vanished, use another
        plan at the same receipt."""
        reason: Exception | None = None
        for attempt in range(PLANS_MAX):
            if attempt:
                planned = replace(planned, plan=self._plan_again(planned))  # its errors are final
            try:
                context = self.context
                # Otherwise the version is opened again: if a clean-up has removed it, the read fails here, not midway.
                opened = _opened(context, planned.plan) if now and not attempt else None
                pinned = opened or planned.plan.pin(context.table)
                check_table_uuid(pinned, context.contract, self.uri)
                return planned, use(self._state(context, pinned, planned.plan, planned.chosen.rows))
            except ContractChanged as error:
                self._take_up_contract()
                reason = error
            except _VANISHED as error:
                reason = error
        raise _exhausted(reason, planned.wanted.read.at)

    def _make(self, wanted: Wanted, *, begin: bool) -> tuple[Planned, Iterator[pa.RecordBatch]]:
        asked = wanted.read.at
        until = self.context.clock.monotonic() + wanted.read.timeout_s
        reason: Exception | None = None
        for attempt in range(PLANS_MAX):
            plan = earlier = None if asked is None else self._plan_at(asked)  # its errors are final
            context = self.context
            try:
                plan = earlier or self._plan_newest(context, wanted.read, attempt, until)
                pinned = _opened(context, plan) or plan.pin(context.table)
                check_table_uuid(pinned, context.contract, self.uri)
                columns = columns_of_plan(context, pinned, plan)
                check_no_blobs_asked(pinned, wanted.columns or ())
                chosen = Chosen.of(columns, wanted)
                check_values(context, pinned, columns, chosen.names)
                rows: Iterator[pa.RecordBatch] = iter(())
                if begin:
                    rows = self._rows(self._state(context, pinned, plan, columns), wanted, chosen)
                left = left_out(context.showing(columns), plan, chosen.columns, chosen.filter)
            except ContractChanged as error:
                reason = error
                self._take_up_contract()
                continue
            except _VANISHED as error:
                reason = error
                continue
            except RegionConflict as error:
                if plan is None or not self._may_be_settled(plan, asked):
                    raise
                reason = error
                continue
            if left.unmerged and plan.branch is None and self._may_be_settled(plan, asked) and attempt < _LOOKS_MAX:
                continue
            if asked is None:
                self._shown = context.contract, columns
            self._tell(left)
            receipt = Receipt(context.contract.uuid, plan.version, plan.cut, self.place, left.unmerged)
            schema = with_left_out(with_receipt(result_schema(columns, chosen.columns), receipt), left)
            return Planned(wanted, plan, receipt, chosen, schema), _described(rows, schema)
        raise _exhausted(reason, asked)

    def _state(self, context: DeltaContext, pinned: PinnedTable, plan: ReadPlan, rows: RowSchema) -> OpenState:
        """Return a state with the columns ``rows``.  ``pinned``: the plan's version as it is stored."""
        return OpenState(context.showing(rows), shown_version(context, pinned, rows), plan, self._lookup.addresses)

    def _rows(self, state: OpenState, wanted: Wanted, chosen: Chosen) -> Iterator[pa.RecordBatch]:
        """Return the rows of the state.  The delta is loaded here.  If its objects have vanished since the plan, the
        error is raised here.
        """
        if wanted.region_key is not None:
            contract, plan = state.context.contract, state.plan
            deltas = deltas_of(contract, plan.deltas, contract.partition_of(wanted.region_key))
            state = replace(state, plan=replace(plan, deltas=deltas))
        if wanted.keys is not None:
            found = lookup_plan(state, chosen.columns, wanted.keys)
            return iter(found.to_batches(max_chunksize=batch_rows(found.schema)))
        batches = scan_plan(state, chosen.columns, chosen.filter, self._lookup.at_hand)
        first = next(batches, None)
        return batches if first is None else chain((first,), batches)

    def _plan_newest(self, context: DeltaContext, read: ReadOptions, attempt: int, until: float) -> ReadPlan:
        """Return a plan of the newest state, or the kept plan.  The kept plan serves only a first attempt, if
        ``max_staleness_s`` and ``at_least`` allow it."""
        consistency = read.consistency
        goal = None if read.at_least is None else self._goal(context, read.at_least)
        with self._lock:
            before, kept = self._newest.get(consistency, Newest()), self._kept
        began = context.clock.monotonic()
        if kept is not None and read.max_staleness_s is not None and not attempt:
            young = began - kept.began < read.max_staleness_s
            enough = goal is None or goal.reached_by(kept.plan)
            alike = kept.contract.row_terms == context.contract.row_terms
            if young and enough and alike and before.reached_by(kept.plan):
                if goal is not None:
                    check_rejected(context, goal)
                return kept.plan
        if goal is not None:
            plan = plan_at_least(context, goal, max(0.0, until - began))
        else:
            plan = plan_strong(context) if consistency == "strong" else plan_eventual(context)
        # A table that a user has restored shows what it shows: nothing is claimed that could have gone back.
        claims = consistency == "strong" or bool(plan.cut)
        before.check(plan, claims)
        with self._lock:
            self._newest[consistency] = self._newest.get(consistency, Newest()).with_plan(plan, claims)
            if consistency == "strong" and (self._kept is None or self._kept.began <= began):
                self._kept = _Kept(plan, began, context.contract)
        return plan

    def _goal(self, context: PlanContext, least: Least) -> Goal:
        try:
            return Goal.of(least, context.contract, self.place)
        except InvalidInput:
            check_contract(context)  # a newer one may have the partition
            raise

    def _may_be_settled(self, plan: ReadPlan, asked: Point | None) -> bool:
        """Whether another plan may show no conflict where this delta has one.  The records that are in conflict here
        may be merged by now, one after the other.

        Raises ``VersionGone`` if the plan uses another version than the receipt asked for, which cannot tell the
        order of records.
        """
        if asked is None:
            return self.context.table.newest().version != plan.version
        asked = read_by(asked)
        if isinstance(asked, Receipt) and plan.version != asked.version:
            raise order_not_told(asked, plan)
        return False

    def _plan_again(self, planned: Planned) -> ReadPlan:
        asked = planned.wanted.read.at
        by = read_by(asked)
        if asked is None or not isinstance(by, AtSnapshot):
            return self._plan_at(planned.receipt)
        plan = self._plan_at(asked)
        if (plan.version, plan.cut) != (planned.plan.version, planned.plan.cut):
            raise SnapshotMissing(
                f"snapshot {by.name} was dropped and made again since this read was planned: read again",
                snapshot=by.name,
            )
        return plan

    def _plan_at(self, at: Point) -> ReadPlan:
        try:
            return plan_at_point(self.context, at, self.place)
        except ContractChanged:
            self._take_up_contract()
            return plan_at_point(self.context, at, self.place)

    def _take_up_contract(self) -> None:
        known = self.context
        contract = read_contract(known.store, self.uri)
        with self._lock:
            if self.context.contract.version < contract.version:  # another thread may have been faster
                known.contracts.know(self.context.contract)  # unmerged rows name it
                self.context = replace(known, contract=contract)

    def _tell(self, left: LeftOut) -> None:
        with self._lock:
            news, self._told = left != self._told, left
        if news:
            left.warn(self.contract.topic)


def _opened(context: DeltaContext, plan: ReadPlan) -> PinnedTable | None:
    """Return the plan's table version, opened, if it is still in the cache; otherwise None."""
    return context.versions.known(plan.version) if plan.branch is None else None


def wanted_of(columns: object, filter: object, read: ReadOptions) -> Wanted:
    """Check the types of a read's arguments, and return them.  Raises ``InvalidInput`` if a type is wrong."""
    if isinstance(filter, pc.Expression):
        filter = sql_of(filter)
    if filter is not None and not isinstance(filter, str):
        raise InvalidInput(
            "filter: expected a condition in Lance's SQL as text, such as 'a > 3', or an expression such as "
            f"pyarrow.compute.field('a') > 3, not {type(filter).__name__}"
        )
    return Wanted(None if columns is None else names_given(columns), filter, read)


def names_given(columns: object) -> tuple[str, ...]:
    """Return a user's column names.  Raises ``InvalidInput`` for anything but a list of names."""
    if isinstance(columns, str):
        raise InvalidInput(f"columns must be a list of names, not the text {columns!r}")
    try:
        return tuple(columns)  # type: ignore[arg-type] # what a user gave
    except TypeError:
        raise InvalidInput(f"columns must be a list of names, not {columns!r}") from None


def columns_of(schema: pa.Schema, columns: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the names of the requested columns; None requests all.

    Raises ``InvalidInput`` if the result has no such column, or if a column is named twice.
    """
    if columns is None:
        return tuple(schema.names)
    names = [*columns]
    unknown = [name for name in names if name not in schema.names]
    if unknown or len(set(names)) != len(names) or not names:
        raise InvalidInput(
            f"columns {names!r}{f': {unknown!r} unknown' if unknown else ''}; name each wanted column once; "
            f"the table has {schema.names}"
        )
    return columns


def check_table_uuid(pinned: PinnedTable, contract: Contract, uri: str) -> None:
    """Raise ``TableReplaced`` unless this version belongs to the table for which the contract was made."""
    found = pinned.config.get(TABLE_UUID)
    if found != contract.table_uuid:
        raise TableReplaced(
            f"the Lance table at {uri} has uuid {found}, the contract says {contract.table_uuid}. If `lancewal table "
            "create`, `attach` or `moved` was interrupted here, run that command again. Otherwise another program "
            "has recreated the table at the same place: put the former table back from a backup"
        )


def _exhausted(reason: Exception | None, at: Point | None) -> Exception:
    # Each plan was made from the newest state: what is trimmed is in none of them, so what is missing is lost.
    if isinstance(reason, VersionGone) and isinstance(at, AtCut):
        return at.without_version(reason)
    if isinstance(reason, RegionConflict | ObjectMissing | VersionGone):
        return reason
    made = PlanRetriesExhausted(
        f"each of {PLANS_MAX} plans named objects that are gone or stale; the last reason: {reason}"
    )
    made.__cause__ = reason
    return made


def _described(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (batch.replace_schema_metadata(schema.metadata) for batch in batches)
