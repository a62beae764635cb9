"""Contract versions by which ingest may have decoded the records of a lost segment.

Each entry of the WAL names its contract version.  If an entry's segment is gone, its version is unknown.  All writers
of a region use contract versions in ascending order.  So the version lies between those of the entries before and
after.

Guarantees
 1. ``repair`` and ``verify`` decode by the same versions, in the same order, if the entries before and after the lost
    segment are in its log.  Then ``verify`` reports no difference for a repaired segment.  ``repair`` knows no entries
    of other logs.  So at the beginning or end of a log it may use newer versions too, and ``verify`` may report a
    record as different.
 2. A record's row is the one that the newest version gives among those under which the record is a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.schema import OFFSET
from lancewal_core.table.contract import Contract, former_columns


def versions_between(opened: OpenedTable, before: int | None, after: int | None) -> tuple[int, ...]:
    """Return the contract versions by which the records between two entries may have been decoded, newest first.

    The result has one version for each state of the columns.  It also has ``before`` if another schema of values or key
    form was accepted since.  ``before`` and ``after``: contract versions of the entries before and after the records;
    None if there is no such entry.
    """
    contract_of = partial(opened.contracts.of, opened.contract)
    newest = opened.contract if after is None else contract_of(after)
    # A schema or a form of keys that a person has accepted decides about rows as columns do.
    same = before is None or _same_schemas(contract_of(before), newest)
    if after is None and before is not None and newest.columns_version <= before and same:
        return (before,)
    found = [newest.version]
    for one in former_columns(opened.store, newest):
        if found[-1] <= (before or 0) or contract_of(found[-1]).columns_version <= (before or 0):
            break
        found.append(one.version)
    if before is not None and not same and before not in found:
        found.append(before)
    return tuple(found)


def _same_schemas(one: Contract, other: Contract) -> bool:
    return (one.schema_versions, one.key_forms) == (other.schema_versions, other.key_forms)


def rows_by_newest(taken: Iterable[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Return the row of each record by the newest version that gives one, ordered by offset.  None if ``taken`` is
    empty.

    ``taken``: for each contract version, newest first, the rows that it gives.  All have the same columns.
    """
    found: list[pa.RecordBatch] = []
    for rows in taken:
        if found:
            known = pa.concat_arrays([one.column(OFFSET) for one in found])
            rows = rows.filter(pc.invert(pc.is_in(rows.column(OFFSET), known)))
        found.append(rows)
    if len(found) < 2:
        return found[0] if found else None
    # A column may allow nulls by one version alone.
    tables = [pa.Table.from_batches([rows]) for rows in found]
    joined = pa.concat_tables(tables, promote_options="default").combine_chunks().sort_by(OFFSET)
    (batch,) = joined.to_batches() or [found[0]]
    return batch
