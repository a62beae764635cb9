"""Find rows that a deletion vector hides although they are the rows that their key's records give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lancewal_audit.verify.compare import WantedRow, key_reader, key_table, shown_key
from lancewal_audit.verify.key_fold import plain_rows
from lancewal_audit.verify.report import MERGED, Finding
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.lance.errors import reading
from lancewal_core.table.lance.pinned import LancePinnedTable

_ROW_ID = "_rowid"


def hidden_rows(pinned: LancePinnedTable, rows: RowSchema, wanted: Sequence[WantedRow]) -> Iterator[Finding]:
    """Yield a finding for each hidden row of a version that equals the row in ``wanted`` of its key."""
    if not wanted:
        return
    names = list(rows.primary_key)
    by_key = {one.key: one for one in wanted}
    keys = KeySet(key_table(rows, list(by_key)))
    key_of = key_reader(rows)
    for fragment in pinned.fragments():
        if not fragment.deleted_rows:
            continue
        for first, batch in _with_hidden(pinned, fragment.fragment_id, rows.table.names):
            hidden = batch.column(_ROW_ID).is_null().to_numpy(zero_copy_only=False)
            at = np.flatnonzero(hidden & keys.contains([batch.column(name) for name in names]))
            found = batch.take(pa.array(at))
            for row, values in zip(at.tolist(), plain_rows(found, rows.table.names), strict=True):
                key = key_of(values)
                state = by_key[key].state
                if not state.differing(values):
                    yield Finding(
                        "hidden", MERGED, "", shown_key(rows, key), state.partition, state.offset,
                        fragment=fragment.fragment_id, row=first + row,
                    )  # fmt: skip


def _with_hidden(
    pinned: LancePinnedTable, fragment_id: int, names: Sequence[str]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield all physical rows of a fragment in batches, each with the number of its first row in the fragment.

    Hidden rows have a null as their row id."""
    fragments = [pinned.dataset.get_fragment(fragment_id)]
    first = 0
    with reading(f"scanning fragment {fragment_id} of version {pinned.version}"):
        scanner = pinned.dataset.scanner(
            columns=list(names), fragments=fragments, with_row_id=True, include_deleted_rows=True
        )
        for batch in scanner.to_batches():
            yield first, batch
            first += batch.num_rows
