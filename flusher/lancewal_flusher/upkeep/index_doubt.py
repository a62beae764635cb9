"""Find indexes whose segments may have old values of rows, or rows that another segment has too: a pure decision.

A commit that writes columns of a fragment in place takes the fragment out of the indexes over these columns.  It
takes out any other fragment that it changes too.  The segments keep their old entries, though, and a query asks all
segments.  Once a newer segment covers the fragment, the old entries count again.  Lancewal does not write indexed
columns in place.  But earlier releases did, an index may be built while a merge writes its column in place, and users
have such commands too.

Only the newest version tells what happened in the past. *In doubt* is

 1. a fragment with a column of the index in another file than its first (``fields_apart``): the column was written in
    place at an unknown time, or was widened.  The repair is one segment that takes in all others and all fragments; a
    full text index is built again.  After that the fragments are rewritten, so that they are no longer in doubt: they
    get ids that no segment has.  In the other order a segment would have rows of fragments that no longer exist.  A
    search for nearest rows would find these, and return too few others.  In a table with stable row ids rewritten
    rows would keep their ids.  There such a fragment is treated only as in case 2, and case 4 finds updated rows;
 2. a fragment that no segment covers, although a segment names fragments with higher ids: it may have been taken out
    of a segment.  The repair is a new segment that takes in all others;
 3. a full text index with a newer segment that covers a fragment, although an older segment names fragments with
    higher ids.  Both may have the fragment's rows, which a query then finds twice.  The index is built again;
 4. in a table with stable row ids, an index with a segment that was made after a row was added and before the row was
    updated.  The row has kept its id, and the segment may have its old values.  The index is built again, and is then
    newer than every update.

Nothing else that lancewal does causes these cases.  Fragments that merges, loads and compactions make have higher ids
than all earlier ones.  All their columns are in one file, and their row ids are new.  After the repair nothing is in
doubt any more: new fragments have one file and the highest ids.  A segment records the version of the oldest segment
that it has taken in; an index that was built again has no such segment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lancewal_core.table.protocol import Fragment, PinnedTable, TableIndex, fields_apart

FULL_TEXT = "Inverted"
FieldIds = Mapping[str, Sequence[int]]
"""Field ids of each column, by its name, as in ``PinnedTable.field_ids``."""


def fragments_in_doubt(index: TableIndex, fragments: Sequence[Fragment], field_ids: FieldIds) -> frozenset[int]:
    """Return the ids of fragments that have a column of the index in another file than their first (case 1)."""
    ids = _fields(index, field_ids)
    return frozenset(f.fragment_id for f in fragments if fields_apart(f, ids))


def doubted_fragments(pinned: PinnedTable) -> dict[str, frozenset[int]]:
    """Return the ids of the fragments that must be rewritten before an index is extended, by the index's name; only
    indexes that have some.
    """
    if pinned.stable_row_ids:
        return {}  # rows would keep their ids, and entries of old values with them: 4
    found = {i.name: fragments_in_doubt(i, pinned.fragments(), pinned.field_ids) for i in pinned.indexes()}
    return {name: fragments for name, fragments in found.items() if fragments}


def takes_in_all(index: TableIndex, fragments: Sequence[Fragment], field_ids: FieldIds) -> bool:
    """Whether an extension must merge all existing segments of the index into the new one (cases 1 and 2)."""
    highest = max((max(named) for named in index.named if named), default=-1)
    ids, covered = _fields(index, field_ids), index.covered
    left = [f for f in fragments if f.fragment_id not in covered]
    return any(f.fragment_id < highest or fields_apart(f, ids) for f in left)


def to_rebuild(index: TableIndex, fragments: Sequence[Fragment], updated: Collection[tuple[int, int]]) -> bool:
    """Whether to rebuild the index.  A full text index may find rows twice (case 3), or rows were updated since it was
    built (case 4).  ``updated``: as returned by ``PinnedTable.updated_rows``.
    """
    if index.kind == FULL_TEXT and any(_twice(index, f.fragment_id) for f in fragments):
        return True
    return any(made <= version < last for version in index.versions for made, last in updated)


def _fields(index: TableIndex, field_ids: FieldIds) -> list[int]:
    return [i for column in index.columns for i in field_ids.get(column, ())]


def _twice(index: TableIndex, fragment_id: int) -> bool:
    covers = [v for v, segment in zip(index.versions, index.segments, strict=True) if fragment_id in segment]
    if not covers:
        return False
    return any(
        version < max(covers) and fragment_id not in named and max(named, default=-1) > fragment_id
        for version, named in zip(index.versions, index.named, strict=True)
    )
