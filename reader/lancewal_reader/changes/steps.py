"""Changes that a commit made which no record tells: expiry, bulk loads, commits of other programs, decisions about conflicts.

Such a commit is a *step* (``Lineage.foreign_steps``), and so is a merge that did not know it.  Its changes are the net ones
between the states right before and right after it, at the same positions.  Positions are those that its version has merged,
but never before those of the feed's start, which the consumer has passed.  So a patch that is unmerged there, over a row that
the step changed, changes too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lancewal_core.errors import DuplicateKeys
from lancewal_core.rows.key_set import distinct
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.contract import Contract
from lancewal_reader.changes.net import net
from lancewal_reader.changes.pairs import Pairs
from lancewal_reader.changes.records import MORE, reached
from lancewal_reader.changes.side import Side
from lancewal_reader.plan.breaks import contracts_up_to
from lancewal_reader.plan.stand_in import StepSource


def step_changes(before: Side, after: Side, source: StepSource, columns: Sequence[str]) -> Iterator[Pairs]:
    """Yield what differs between the two states.  ``columns`` include those of the primary key."""
    names, contract = list(columns), contract_of(after)
    for pairs in net(before, after, names, names):
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


def contract_of(side: Side) -> Contract:
    """Return the contract by whose topic and number of partitions records right after a state are placed."""
    newest, cut = side.context.contract, side.receipt.positions
    contracts = contracts_up_to(side.context.store, newest)
    found = contracts[0]
    for contract in contracts[1:]:
        if contract.topic_id != found.topic_id and not any(region.topic_id == contract.topic_id for region in cut):
            break
        ends = dict(zip(found.regions, contract.altered_at, strict=False))
        if contract.altered_at != found.altered_at and any(cut.get(region, 0) < end for region, end in ends.items()):
            break
        found = contract
    return newest.model_copy(update={"partitions": found.partitions})
