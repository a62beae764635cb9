"""Drop a cut: its record first, then its snapshots.

If the process dies between the two, snapshots without a cut stay.  A cut without its snapshots never results.  A read
of the cut that is under way ends with an error that names the missing files.
"""

from __future__ import annotations

from collections.abc import Mapping

from lancewal_core.catalog.catalog import TRIES_MAX, StoredCatalog
from lancewal_core.catalog.cut import Cut, cut_note
from lancewal_core.errors import CutMissing, LancewalError, or_error
from lancewal_core.process.failpoints import point
from lancewal_core.process.tasks import Tasks
from lancewal_core.table.protocol import StoredTable
from lancewal_core.table.snapshots import cut_of
from lancewal_flusher.garbage.snapshots import drop_same


def drop_cut(
    catalog: StoredCatalog, cut: Cut, tables: Mapping[str, StoredTable], tasks: Tasks
) -> dict[str, bool | LancewalError]:
    """Drop the cut.  ``tables`` has those tables of the cut that can be opened, by name.

    A moving cut is dropped even if a flusher publishes it again during the call.  Return for each table with a snapshot
    whether the snapshot was dropped, or the error.  Raises ``CutMissing`` if another cut has the name now.
    """
    with point("cut.drop", cut=cut.name):
        dropped = catalog.swap_cut(cut.name, cut, None) or (cut.moving and _drop_moving(catalog, cut.name))
    if not dropped:
        raise CutMissing(
            f"another process replaced or dropped cut {cut.name} meanwhile: nothing was dropped", cut=cut.name
        )
    names = [name for name, of in cut.tables.items() if of.snapshot is not None and name in tables]
    of = {name: cut.tables[name].snapshot or "" for name in names}
    answers = tasks.map(lambda name: or_error(lambda: drop_of_cut(tables[name], of[name], cut.write_id)), names)
    return dict(zip(names, answers, strict=True))


def _drop_moving(catalog: StoredCatalog, name: str) -> bool:
    """Drop a moving cut, whichever publication is the newest.  Return False if a kept cut has the name, or publications
    came faster than drops."""
    for _ in range(TRIES_MAX):
        newest = catalog.cut(name)
        if newest is None:
            return True
        if not newest.moving:
            return False
        if catalog.swap_cut(name, newest, None):
            return True
    return False


def drop_of_cut(table: StoredTable, snapshot: str, write_id: str) -> bool:
    """Drop the snapshot if it was made for the cut's record with the id ``write_id``, and return whether it was
    dropped.  Another snapshot of this name stays.
    """
    branch = table.find_branch(snapshot)
    if branch is None or not cut_of(branch):
        return False
    ours = cut_note(cut_of(branch), f"snapshot {branch.name}").write_id == write_id
    return ours and drop_same(table, branch.name, branch.notes)
