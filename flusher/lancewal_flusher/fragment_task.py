"""The work of a merge on one fragment, as a pure value: find the rows that keys replace, and hide them.

A task pickles: a thread or a Spark executor runs it with nothing but the table.  Running it twice is harmless: it writes
a deletion file that only a commit makes effective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lancewal_core.failpoints import point
from lancewal_core.ids import TableVersion
from lancewal_core.key_lookup import find_keys
from lancewal_core.key_match import KeySet
from lancewal_core.table import Table


@dataclass(frozen=True, slots=True)
class FragmentTask:
    """``keys`` are looked up in one fragment of ``version``; one set serves all tasks of a merge.

    Rows of the first ``partial_keys`` of them are returned with ``columns``, to complete patches.
    """

    version: TableVersion
    fragment_id: int
    keys: KeySet
    partial_keys: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FragmentResult:
    """``updated``: the fragment's new JSON, None if no row is left; ``hits`` rows were hidden."""

    fragment_id: int
    hits: int
    updated: str | None
    base: pa.Table
    """Rows that patches apply to."""


def run_task(table: Table, task: FragmentTask) -> FragmentResult:
    """Look up, read what patches need, write the deletion vector.  Raises ``VersionGone``."""
    pinned = table.at(task.version)
    found = find_keys(pinned, task.keys, [task.fragment_id])
    columns = list(task.columns)
    base = pinned.take(pa.array(found.addresses[found.places < task.partial_keys]), columns)
    if len(found.addresses) == 0:
        return FragmentResult(task.fragment_id, 0, None, base)
    rows = (found.addresses & np.uint64(0xFFFFFFFF)).astype(np.int64).tolist()
    with point("dv.write", fragment=task.fragment_id, rows=len(rows)):
        updated = pinned.hide_rows(task.fragment_id, rows)
    return FragmentResult(task.fragment_id, len(rows), updated, base)
