"""Which objects of keys in conflict (``conflicts``) nobody needs any more: part of step 4 of ``collect``.

Guarantee: an object that a version names which is still there, tagged or not, is none: that version may be read at a receipt,
or restored.  Where it is not known of one of these versions what it names, none is.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancewal_core import paths
from lancewal_core.errors import TableRestored, WatermarkUnknown
from lancewal_core.store.object_store import ObjectInfo
from lancewal_flusher.context import FlusherContext


def free_conflicts(context: FlusherContext, listed: Sequence[ObjectInfo]) -> set[str]:
    """Objects of older merges, and of merges that never landed."""
    found = {info.key for info in listed if paths.parse_conflicts_object(info.key) is not None}
    if not found:
        return found
    newest = context.watermarks.newest()[1].conflicts
    if newest is not None:
        found.discard(newest.key)
    if not found:
        return found  # as most often: no version but the newest is looked at
    try:
        for version in sorted(context.table.versions()):
            named = context.watermarks.at(version).conflicts
            if named is not None:
                found.discard(named.key)
    except (WatermarkUnknown, TableRestored):
        return set()
    return found
