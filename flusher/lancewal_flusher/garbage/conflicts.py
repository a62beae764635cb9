"""Find objects with keys in conflict that nobody needs any more: part of step 4 of ``collect``.

Guarantees
 1. An object is not free if an existing table version names it: that version may be read at a receipt, or restored.
    If it is unknown which object one of these versions names, no object is free.
 2. An object is not free if its commit may still land, however long its process has slept: such objects are younger
    than the record of the newest merge.  A commit that names an older object was computed before that merge.  Lance
    refuses it, because both change the sentinel.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancewal_core.errors import MergedPositionUnknown, TableRestored
from lancewal_core.names import paths
from lancewal_core.store.object_store import ObjectInfo
from lancewal_flusher.context import FlusherContext


def free_conflicts(context: FlusherContext, listed: Sequence[ObjectInfo]) -> set[str]:
    """Return the keys of the listed objects that are free: those of older merges, and of merges that never landed."""
    objects = [info for info in listed if paths.parse_conflicts_object(info.key) is not None]
    if not objects:
        return set()
    newest = context.watermarks.newest()[1]
    record = paths.merge_record(newest.version, context.contract.making)
    recorded = context.store.list(paths.merges_prefix(context.contract.making), limit=1, after=record[:-1])
    if not recorded or recorded[0].key != record:
        return set()
    found = {info.key for info in objects if info.modified_ms < recorded[0].modified_ms}
    if newest.conflicts is not None:
        found.discard(newest.conflicts.key)
    if not found:
        return found  # as most often: no version but the newest is looked at
    try:
        for version in sorted(context.table.versions()):
            named = context.watermarks.at(version).conflicts
            if named is not None:
                found.discard(named.key)
    except (MergedPositionUnknown, TableRestored):
        return set()
    return found
