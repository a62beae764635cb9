"""Merged rows that two versions of a table do not share.

Guarantees
 1. A row that is live in the first version, and not in ``gone``, is live in the second one.  It is not in ``come`` there,
    and its cells in the wanted columns are equal.
 2. The same holds for a row of the second version that is not in ``come``.
 3. Rows with equal cells may be in ``gone`` and ``come``.
 4. If both versions have a fragment, its deletion vectors are read only if they differ, and its columns only if their
    files differ.  Fragments with the same id are the same if they share a data file.
 5. Rows of other fragments are followed through compactions (``trace``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lancewal_core.process.tasks import Tasks, together
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.protocol import Fragment, PinnedTable
from lancewal_reader.changes.cells import Addresses, Cells, row_addresses
from lancewal_reader.changes.trace import Untraced, hidden_rows, is_same_space, trace, without
from lancewal_reader.event_table import ReaderEvents


@dataclass(frozen=True, slots=True)
class Between:
    """Rows that two versions do not share, as ascending row addresses."""

    gone: Addresses
    """Addresses of the rows of the first version that the second one is not known to have."""
    come: Addresses
    """Addresses of the rows of the second version that the first one is not known to have."""
    untraced: Sequence[Untraced] = ()
    """Fragments whose rows all count as not shared, since nothing shows where a commit has moved them."""

    @property
    def compared_fragments(self) -> int:
        return len(self.untraced)


def between(
    opened: OpenedTable, before: PinnedTable, after: PinnedTable, rows: RowSchema, columns: Sequence[str]
) -> Between:
    """Return the rows of two versions that the other one is not known to have.  Either version may be the newer one.

    ``before`` and ``after`` are the stored versions (``stored_version``).  ``columns``: names of columns in ``rows``,
    whose ids find these columns in both versions.  Raises ``ContractMismatch`` if a version cannot have them.
    """
    if before.version > after.version:
        found = between(opened, after, before, rows, columns)
        return Between(found.come, found.gone, found.untraced)
    cells = Cells.of(opened, before, after, rows, columns)
    gone = {fragment.fragment_id: fragment for fragment in before.fragments()}
    come = {fragment.fragment_id: fragment for fragment in after.fragments()}
    shared = [(gone[i], come[i]) for i in gone.keys() & come.keys() if is_same_space(gone[i], come[i])]
    for old, _ in shared:
        del gone[old.fragment_id], come[old.fragment_id]
    left, arrived = _of_shared(opened.tasks, cells, shared)
    traced = trace(opened, cells, gone, come)
    if traced.untraced:
        ReaderEvents().fragments_compared(
            from_version=int(before.version), to_version=int(after.version), fragments=len(traced.untraced)
        )
    return Between(_ascending([*left, *traced.gone]), _ascending([*arrived, *traced.come]), traced.untraced)


def _of_shared(
    tasks: Tasks, cells: Cells, shared: Sequence[tuple[Fragment, Fragment]]
) -> tuple[list[Addresses], list[Addresses]]:
    """Compare fragments that both versions have.  Return the addresses of the rows that only the older version has,
    and of those that only the newer one has.
    """
    changed = []
    for old, new in shared:
        apart = cells.apart(old, new)
        if apart or old.deletion_file != new.deletion_file:
            changed.append((old, new, apart))
    older, newer = cells.versions
    hidden, hidden_now = together(
        tasks,
        lambda: hidden_rows(tasks, older, {old.fragment_id: old for old, _, _ in changed}),
        lambda: hidden_rows(tasks, newer, {new.fragment_id: new for _, new, _ in changed}),
    )
    left, arrived = [], []
    for old, new, apart in changed:
        before, after = hidden[old.fragment_id], hidden_now[new.fragment_id]
        left.append(row_addresses(old, without(after, before)))
        arrived.append(row_addresses(old, without(before, after)))
        if apart:
            live = row_addresses(old, without(without(np.arange(old.physical_rows), before), after))
            differing = live[~cells.equal(live, live, apart)]
            left.append(differing)
            arrived.append(differing)
    return left, arrived


def _ascending(parts: Sequence[Addresses]) -> Addresses:
    return np.sort(np.concatenate([np.zeros(0, np.uint64), *parts]))
