"""``open_table``: a lancewal table for readers in any process, straight from object storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import pyarrow as pa

from lancewal_core.errors import (
    ContractChanged,
    InvalidInput,
    ObjectMissing,
    PlanRetriesExhausted,
    PlanStale,
    RegionConflict,
    StoreInconsistent,
    TableReplaced,
    VersionGone,
)
from lancewal_core.ids import Position, Region
from lancewal_core.open import Address, open_at
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.store.place import place_of, same_place
from lancewal_core.table.contract import Contract, read_contract
from lancewal_core.table.lance.base_paths import BasePaths
from lancewal_core.table.protocol import PinnedTable
from lancewal_core.table.watermarks import TABLE_UUID
from lancewal_core.wal.walk import SegmentCache
from lancewal_reader.filter import check_filter
from lancewal_reader.left_out import LeftOut, OnConflict, check_waiting, with_left_out
from lancewal_reader.plan.at_receipt import plan_at
from lancewal_reader.plan.strong import PLANS_MAX, PlanContext, ReadPlan, plan_eventual, plan_strong
from lancewal_reader.receipt import Receipt, with_receipt
from lancewal_reader.scan import left_out, result_schema, scan_plan
from lancewal_reader.unmerged import DeltaContext, LoadedCache, SnapshotCache, folding_of

Consistency = Literal["strong", "eventual"]
CACHE_BYTES = 256 << 20
"""Most bytes of WAL segments, and of snapshots, that an open table remembers between scans."""
_LOOKS_MAX = 3
"""Plans made anew because what conflicts may be merged by now."""


def open_table(
    uri: str,
    storage_options: Mapping[str, str] | None = None,
    base_paths: BasePaths = "refuse",
    conflicts: OnConflict = "leave_out",
) -> LancewalTable:
    """Open the table at ``uri`` (a local path, ``file://`` or ``s3://``) for reading; read-only credentials suffice.

    ``storage_options`` are Lance's.  ``base_paths``: a table whose files lie in other folders too, as those of a shallow clone
    do, is refused (``BasePathsRefused``) unless this is ``allow``.  ``conflicts``: of keys that came through two partitions,
    which nothing orders, reads ``leave_out`` records and say so (``left_out_of``), or ``fail`` with ``RegionConflict``.
    Raises ``TableMissing``, ``NotALancewalTable``, ``TableReplaced``, ``StoreUnavailable``; ``InvalidSettings`` for an address
    with user information.
    """
    return LancewalTable(uri, storage_options, base_paths, conflicts)


class LancewalTable:
    """An open table.  Scans of one object, but those at a receipt, never go back in time; one thread at a time may use it."""

    def __init__(
        self,
        uri: str,
        storage_options: Mapping[str, str] | None = None,
        base_paths: BasePaths = "refuse",
        conflicts: OnConflict = "leave_out",
    ) -> None:
        if conflicts not in get_args(OnConflict):
            raise InvalidInput(f"conflicts {conflicts!r} is unknown: use 'leave_out' or 'fail'")
        if base_paths not in ("refuse", "allow"):
            raise InvalidInput(f"base_paths {base_paths!r} is unknown: use 'refuse' or 'allow'")
        self.uri = uri
        self._place = place_of(uri)
        opened = open_at(Address(uri, storage_options, base_paths), ThreadTasks(io_threads=16), SystemClock())
        self._contract = opened.contract
        segments = SegmentCache(CACHE_BYTES)
        self._plan = PlanContext(*opened.parts, segments)
        folding = folding_of(opened.contract, conflicts)
        self._delta = DeltaContext(*opened.parts, segments, SnapshotCache(CACHE_BYTES), LoadedCache(), folding)
        self._seen: dict[str, tuple[int, dict[Region, Position]]] = {}
        self._told = LeftOut()
        """Said last: a reader that looks again says it once."""

    @property
    def contract(self) -> Contract:
        return self._contract

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table."""
        return self._contract.rows.table

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        consistency: Consistency = "strong",
        at: Receipt | str | bytes | None = None,
    ) -> pa.RecordBatchReader:
        """Rows of the table as of now, or again those of an earlier read.

        ``columns``: names, in the order wanted (default all).  ``filter``: a Lance SQL condition.  ``consistency``:
        ``strong`` sees every row that was durable before the call; ``eventual`` the merged table alone, also one that a
        user has restored: its receipt then has no positions.  ``at``: a receipt, or its JSON; the rows are exactly those of
        the read that gave it, in any order (``plan.at_receipt``).  The schema's metadata carry the receipt, with the table
        version used.  Raises ``InvalidInput`` for an unknown column, filter, consistency or receipt; with ``at`` also
        ``VersionGone``, ``OutsideHistoryWindow`` and ``RecordsGivenUp``; ``ObjectMissing`` or ``ObjectCorrupt`` where
        an object that the read needs is lost or damaged.
        """
        names = self._columns(columns)
        check_filter(self.schema, filter)
        if at is not None and consistency != "strong":
            raise InvalidInput(f"at=... says what is read; consistency {consistency!r} cannot be asked for as well")
        asked = Receipt.from_json(at) if isinstance(at, str | bytes) else at
        if asked is not None and not same_place(asked.place, self._place):
            raise InvalidInput(
                f"the receipt is of a read at {asked.place}, this table lies at {self._place}: read the table that gave "
                "it, by the address that it names"
            )
        reason: Exception | None = None
        for attempt in range(PLANS_MAX):
            plan = earlier = None if asked is None else self._plan_at(asked)  # its errors are final
            try:
                plan = earlier or self._make_plan(consistency)
                pinned = self._pin(plan)
                batches = scan_plan(self._delta, pinned, plan, names, filter)
                first = next(batches, None)  # loads the delta: what vanished under the plan shows here
                check_waiting(self._contract, plan.in_force.conflicts, self._delta.folding.on_conflict)
                left = left_out(self._delta, plan, names, filter)
            except ContractChanged as error:
                reason = error
                self._take_up_contract()
                continue
            except (PlanStale, ObjectMissing, StoreInconsistent, VersionGone) as error:
                reason = error
                continue
            except RegionConflict as error:
                if plan is None or not self._may_be_settled(plan, asked):
                    raise
                reason = error
                continue
            if left.unmerged and self._may_be_settled(plan, asked) and attempt < _LOOKS_MAX:
                continue
            if left != self._told:
                left.warn(self._contract.topic)
                self._told = left
            receipt = Receipt(self._contract.uuid, plan.version, plan.cut, self._place, left.unmerged)
            schema = with_left_out(with_receipt(result_schema(self._contract.rows, names), receipt), left)
            return pa.RecordBatchReader.from_batches(schema, _chain(first, batches, schema))
        # Each plan was made from the newest state: what is trimmed is in none of them, so what is missing is lost.
        if isinstance(reason, RegionConflict | ObjectMissing):
            raise reason
        raise PlanRetriesExhausted(f"objects vanished under {PLANS_MAX} plans; the last: {reason}") from reason

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        consistency: Consistency = "strong",
        at: Receipt | str | bytes | None = None,
    ) -> pa.Table:
        """``scan`` as one table in memory."""
        return self.scan(columns, filter, consistency, at).read_all()

    def _columns(self, columns: Sequence[str] | None) -> list[str]:
        if columns is None:
            return list(self.schema.names)
        if isinstance(columns, str):
            raise InvalidInput(f"columns must be a list of names, not the text {columns!r}")
        unknown = [name for name in columns if name not in self.schema.names]
        if unknown or len(set(columns)) != len(columns) or not columns:
            raise InvalidInput(
                f"columns {list(columns)!r}{f': {unknown!r} unknown' if unknown else ''}; name each wanted column once; "
                f"the table has {self.schema.names}"
            )
        return list(columns)

    def _make_plan(self, consistency: Consistency) -> ReadPlan:
        if consistency not in ("strong", "eventual"):
            raise InvalidInput(f"consistency {consistency!r} is unknown: use 'strong' or 'eventual'")
        plan = plan_strong(self._plan) if consistency == "strong" else plan_eventual(self._plan)
        version, cut = self._seen.get(consistency, (0, {}))
        # A table that a user has restored shows what it shows: nothing is claimed that could have gone back.
        claims = consistency == "strong" or bool(plan.cut)
        back = [r.name for r, p in cut.items() if claims and plan.cut.get(r, Position(0)) < p]
        if plan.version < version or back:
            raise StoreInconsistent(
                f"the store shows an older state than an earlier read did: version {plan.version} after {version}, "
                f"regions {back[:3]}"
            )
        self._seen[consistency] = (plan.version, plan.cut)
        return plan

    def _may_be_settled(self, plan: ReadPlan, asked: Receipt | None) -> bool:
        """Whether another plan may show no conflict where this delta has one: what met may be merged, one behind the other, by
        now.  ``VersionGone`` where a version stands in that does not tell the order."""
        if asked is None:
            return self._plan.table.newest().version != plan.version
        if plan.version != asked.version:
            raise _order_not_told(asked, plan)
        return False

    def _plan_at(self, receipt: Receipt) -> ReadPlan:
        try:
            plan = plan_at(self._plan, receipt)
        except ContractChanged:
            self._take_up_contract()
            plan = plan_at(self._plan, receipt)
        if receipt.left_out and plan.version != receipt.version:
            raise _order_not_told(receipt, plan)
        return plan

    def _take_up_contract(self) -> None:
        self._contract = read_contract(self._plan.store, self.uri)
        self._plan = replace(self._plan, contract=self._contract)
        self._delta = replace(self._delta, contract=self._contract)

    def _pin(self, plan: ReadPlan) -> PinnedTable:
        pinned = self._plan.table.at(plan.version)
        check_identity(pinned, self._contract, self.uri)
        return pinned


def _order_not_told(asked: Receipt, plan: ReadPlan) -> VersionGone:
    return VersionGone(
        f"table version {asked.version} of the receipt is gone: a clean-up removed it, and the version that would stand in "
        f"for it, {plan.version}, does not tell in which order rows of a key came through two partitions",
        version=asked.version,
    )


def check_identity(pinned: PinnedTable, contract: Contract, uri: str) -> None:
    """Raise ``TableReplaced`` unless this version belongs to the table that the contract was made for."""
    found = pinned.config.get(TABLE_UUID)
    if found != contract.table_uuid:
        raise TableReplaced(
            f"the Lance table at {uri} has uuid {found}, the contract says {contract.table_uuid}: it was recreated at "
            "the same place; or `lancewal table create`, `attach` or `moved` was interrupted here: run it again"
        )


def _chain(first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[Any]:
    if first is not None:
        yield first.replace_schema_metadata(schema.metadata)
    for batch in rest:
        yield batch.replace_schema_metadata(schema.metadata)
