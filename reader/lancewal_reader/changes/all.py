"""All changes between two states: each record, and each commit that changed rows independently of records.

Guarantees
 1. Applying the changes in their order to the rows of the first state gives those of the second, cell by cell.
 2. ``_sequence`` grows with each change of a key, also from one feed to the next that begins where it ended.
 3. The same two receipts give the same changes, whatever was merged or compacted since.

Steps
 1. If the number of partitions or the topic was changed between the states, divide the range at a version that has
    merged all records from before this change and none from after it.
 2. Find the steps between the two versions (``Lineage.foreign_steps``).  They divide the range into stretches of records.
    A stretch ends at the version before the step, at the step's positions.
 3. For each stretch give the changes of its records (``records``), from the state at which it begins.
 4. For each step give the difference between the states right before and after it.

A *step* is a commit that changed rows otherwise than by records.  It is an expiry, a bulk load, a commit of another
program, or a decision about keys in conflict.  A merge that did not know such a commit is a step too.  The states
before and after it have the positions that its version has merged, or those of the feed's start if these are later.
If an unmerged patch lies over a row that the step changed, the patched row is in the difference too.

States in between are planned like those of receipts, so another version may replace one that is gone.  Two adjoining
feeds may give a step at another place than one feed over both ranges.  The one feed gives it before records that the
step's version had not merged.  The second of two feeds gives it after those records that the first feed gave.
Guarantee 1 holds in both cases.

Errors are those of ``records`` and ``Lineage.foreign_steps``, and three more.
 * ``VersionGone``: the version before or after a step is gone, and no other version can replace it.
 * ``RegionConflict``: keys in conflict forbid the feed (``meetings``).
 * ``DuplicateKeys``: a state shows a key twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np
import pyarrow as pa

from lancewal_core.errors import DuplicateKeys, InvalidInput, VersionGone
from lancewal_core.names.ids import Position, Region, TableVersion
from lancewal_core.rows.key_set import distinct
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import Contract
from lancewal_core.table.protocol import version_exists
from lancewal_core.table.watermarks import InForce
from lancewal_reader.changes.meetings import counting_of
from lancewal_reader.changes.net import net
from lancewal_reader.changes.pairs import Pairs
from lancewal_reader.changes.records import MORE, Entries, RecordStretch, entries_between, reached, record_changes
from lancewal_reader.changes.side import Side
from lancewal_reader.plan.at_receipt import plan_at
from lancewal_reader.plan.breaks import Cut, spans_a_change
from lancewal_reader.plan.lineage import Lineage, StepSource
from lancewal_reader.point.receipt import Receipt
from lancewal_reader.reading.shown_version import shown_version
from lancewal_reader.unmerged.load import DeltaContext
from lancewal_reader.unmerged.portions import records_in

_NAMED = 3


def all_changes(start: Side, end: Side, columns: Sequence[str]) -> Iterator[Pairs]:
    """Yield every change from ``start`` to ``end``, including those that later changes undo.

    ``columns`` are names of columns of ``end``, and must include the primary key.  ``more`` of the result has the
    columns ``records.MORE``.
    """
    context = end.context
    _check_order(start, end)
    yield from _changes(start, end, columns, Lineage.of(context))


def _changes(start: Side, end: Side, columns: Sequence[str], lineage: Lineage) -> Iterator[Pairs]:
    middle = _divided(start, end)
    if middle is not None:
        yield from _changes(start, middle, columns, lineage)
        yield from _changes(middle, end, columns, lineage)
        return
    context = end.context
    begin, last = start.receipt.positions, end.receipt.positions
    # Step 2
    steps = lineage.foreign_steps(start.receipt.version, end.receipt.version)
    entries = entries_between(context, start.plan.in_force, begin, last)
    at = start
    for step in steps:
        cut = _cut(begin, context.watermarks.at(step.version))
        before = _opened(end, step.before, cut, at)
        yield from _stretch(at, before, entries, columns)  # Step 3
        at = _opened(end, step.version, cut)
        yield from _step(before, at, step.source, columns)  # Step 4
    yield from _stretch(at, end, entries, columns)


def _stretch(start: Side, end: Side, entries: Entries, columns: Sequence[str]) -> Iterator[Pairs]:
    """Yield the changes of the records from one state to another.  If the records may have more than ``keys_max``
    keys, divide them at merges.
    """
    while True:
        stretch = RecordStretch.of(start, entries, end.receipt.positions)
        middle = _merged_between(start, end, entries) if records_in(stretch.deltas) > start.context.keys_max else None
        if middle is not None:
            stretch = RecordStretch.of(start, entries, middle.receipt.positions)
        counting = counting_of(start, middle or end)
        if stretch.deltas:
            yield from record_changes(stretch, columns, counting)
        if middle is None:
            return
        start = middle


def _merged_between(start: Side, end: Side, entries: Entries) -> Side | None:
    """Return the state of a version between two states that divides their records; None if there is none.

    It is the newest one up to which the records have at most ``keys_max`` keys, or else the oldest one."""
    context, begin = end.context, start.receipt.positions
    merged = _merged(context, range(start.receipt.version + 1, end.receipt.version))
    cuts = [(version, _cut(begin, in_force)) for version, in_force in merged]
    dividing = [(version, cut) for version, cut in cuts if cut not in (begin, end.receipt.positions)]

    def fits(divided: tuple[TableVersion, Cut]) -> bool:
        return records_in(RecordStretch.of(start, entries, divided[1]).deltas) <= context.keys_max

    fitting = list(takewhile(fits, dividing))  # later versions have no fewer records
    for version, cut in (*reversed(fitting), *dividing[len(fitting) :]):
        if version_exists(context.table, version):
            return _opened(end, version, cut)
    return None


def _merged(context: DeltaContext, versions: Sequence[int]) -> list[tuple[TableVersion, InForce]]:
    """Return the watermarks of these versions, read concurrently.  A version whose watermarks are unknown is left
    out.
    """
    found = context.tasks.map(context.watermarks.known_at, versions)
    return [(TableVersion(v), in_force) for v, in_force in zip(versions, found, strict=True) if in_force is not None]


def _cut(begin: Mapping[Region, Position], in_force: InForce) -> dict[Region, Position]:
    """Return the positions that a version has merged, but none before ``begin``."""
    merged = in_force.positions
    return {r: max(merged.get(r, Position(0)), begin.get(r, Position(0))) for r in merged | dict(begin)}


def _opened(like: Side, version: TableVersion, cut: Mapping[Region, Position], known: Side | None = None) -> Side:
    """Open the state of a version at these positions, with the columns of ``like``.  If ``known`` is this state,
    return ``known``.
    """
    receipt = Receipt(like.receipt.table_uuid, version, dict(cut), like.receipt.place)
    if known is not None and (known.receipt.version, known.receipt.positions) == (version, receipt.positions):
        return known
    context = like.context
    plan = plan_at(context, receipt)
    pinned = shown_version(context, plan.pin(context.table), context.rows)
    return replace(like, pinned=pinned, plan=plan, receipt=receipt)


def _check_order(start: Side, end: Side) -> None:
    """Raise ``InvalidInput`` unless ``end`` is at or after ``start``, and both have positions."""
    one, other = start.receipt, end.receipt
    for receipt in (one, other):
        if not receipt.positions and not _nothing_merged(start.context, receipt.version):
            raise InvalidInput(
                f"table version {receipt.version} was restored, and nobody had decided yet what is merged in it. So its state "
                "has no positions to begin or end with. Use mode 'net', or another point"
            )
    back = [r for r, at in sorted(one.positions.items()) if other.positions.get(r, Position(0)) < at]
    if one.version > other.version or back:
        places = [f"{r.topic}-{r.partition}: {one.positions[r]} to {other.positions.get(r, 0)}" for r in back[:_NAMED]]
        raise InvalidInput(
            f"the feed's start is after its end: table version {one.version} to {other.version}"
            f"{', ' if places else ''}{', '.join(places)}"
        )


def _nothing_merged(context: DeltaContext, version: TableVersion) -> bool:
    return any(not in_force.regions for _, in_force in _merged(context, [version]))


def _divided(start: Side, end: Side) -> Side | None:
    """Return the state at which the range is to be divided (step 1); None if it need not be."""
    context = end.context
    if context.contract.version == 1:
        return None
    contracts = context.contracts.up_to(context.contract)
    begin, last = start.receipt.positions, end.receipt.positions
    if not spans_a_change(contracts, begin, last):
        return None

    def lies_between(cut: Cut) -> bool:
        return all(cut.get(r, 0) >= at for r, at in begin.items()) and all(
            at <= last.get(r, 0) for r, at in cut.items()
        )

    for version, in_force in _merged(context, range(end.receipt.version, start.receipt.version - 1, -1)):
        cut = in_force.positions
        if lies_between(cut) and cut != begin and not spans_a_change(contracts, begin, cut):
            try:
                return _opened(end, version, cut)
            except VersionGone:
                break
    raise VersionGone(
        "partitions were added, or the topic recreated, between the two points, and no version is left that has merged "
        "exactly the records from before. Use mode 'net', or begin after the change",
        version=start.receipt.version,
    )


def _step(before: Side, after: Side, source: StepSource, columns: Sequence[str]) -> Iterator[Pairs]:
    """Yield what differs between the states before and after a step."""
    names, contract = list(columns), _contract_of(after)
    for pairs in net(before, after, names):
        if source == "commit":
            _check_new(before, pairs)
        if len(pairs):
            more = _more(reached(after.receipt), _partitions(contract, after.rows, pairs), source)
            yield replace(pairs, before=pairs.before.select(names), after=pairs.after.select(names), more=more)


def _check_new(before: Side, pairs: Pairs) -> None:
    """Raise ``DuplicateKeys`` if another program has appended a row of a key that had one: then the key has two."""
    rows = before.rows
    new = pairs.after.select(list(rows.primary_key)).filter(pa.array(pairs.has & ~pairs.had)).cast(rows.key)
    keys = distinct(new, rows)
    if keys.num_rows < new.num_rows or (keys.num_rows and before.rows_of(keys, rows.primary_key).num_rows):
        raise DuplicateKeys(
            f"after table version {before.receipt.version} another program has appended rows of keys that had one, so later "
            "versions show these keys twice. `lancewal verify` names them. The flusher hides the older rows with their next "
            "records: begin the feed after that merge"
        )


def _more(sequence: int, partitions: pa.Array, source: StepSource) -> pa.Table:
    count = len(partitions)
    columns = [
        pa.array(np.full(count, sequence)),
        partitions,
        pa.nulls(count, pa.int64()),
        pa.nulls(count, MORE.field("_record_time").type),
        pa.repeat(pa.scalar(source), count),
    ]
    return pa.Table.from_arrays(columns, schema=MORE)


def _partitions(contract: Contract, rows: RowSchema, pairs: Pairs) -> pa.Array:
    """Return the partition of each key by the number of partitions in ``contract``; nulls if rows do not tell it."""
    if contract.key_codec is None or not contract.rows_tell_partition:
        return pa.nulls(len(pairs), pa.int32())
    both = pa.concat_tables([pairs.before, pairs.after])
    places = pa.array(np.arange(len(pairs)) + np.where(pairs.has, len(pairs), 0))
    keys = [both[name].take(places).combine_chunks() for name in rows.region_key]
    return pa.array(contract.partitions_of(contract.key_codec.encode_batch(keys)))


def _contract_of(side: Side) -> Contract:
    """Return the contract by whose topic and number of partitions records right after a state are placed."""
    newest, cut = side.context.contract, side.receipt.positions
    contracts = side.context.contracts.up_to(newest)
    found = contracts[0]
    for contract in contracts[1:]:
        if contract.topic_id != found.topic_id and not any(region.topic_id == contract.topic_id for region in cut):
            break
        ends = dict(zip(found.regions, contract.altered_at, strict=False))
        if contract.altered_at != found.altered_at and any(cut.get(region, 0) < end for region, end in ends.items()):
            break
        found = contract
    return newest.model_copy(update={"partitions": found.partitions})
