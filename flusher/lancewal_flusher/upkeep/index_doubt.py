"""Find where a segment of an index may hold old values of rows, or rows that another segment holds too: a pure decision.

A commit that writes columns of a fragment in place reduces what the indexes over these columns cover.  They no longer
cover the fragment, nor any other one that the commit changes.  The segments keep their entries, though, and a query
asks all segments.  Once a newer segment covers the fragment, the old entries count again.  Lancewal does not write
columns under an index in place.  But it has done so, an index may be built beside a merge that writes its column in
place, and users have such commands too.

The past is known only by what the newest version says.  In doubt is

 1. a fragment of which a column of the index lies apart from its first file (``fields_apart``): it was written in
    place, at an unknown time, or has become wider.  One segment that takes in all others and all fragments is right; a
    full text index is built again.  Only then the fragments are rewritten, so that nothing is in doubt of them: they get
    numbers that no segment holds.  In the other order a segment would hold rows of fragments that nobody names.  A search for
    the nearest would find them, and then too few.  In a table with stable row ids the rows would keep theirs: there the
    fragment counts only as 2, and 4 tells what was updated;
 2. a fragment that no segment covers though one names fragments above it: it may have been taken from one.  A new
    segment that takes in all others is right;
 3. a full text index of which a newer segment covers a fragment, though an older one names fragments above it: both
    may hold its rows, which a query then finds twice.  The index is built again;
 4. of a table with stable row ids, an index with a segment that is older than an update of a row which is older than
    the segment: the row has kept its id, and the segment may hold its old values.  Built again, the index is younger
    than every update.

Nothing else that lancewal does causes any of these.  Fragments that merges, loads and compactions make have higher numbers
than all before, all columns in one file, and rows whose ids are theirs alone.  After the repair nothing is in doubt
again: new fragments have one file and the highest number.  A segment says the version of the oldest that it has taken
in, and a new index has none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lancewal_core.table.protocol import Fragment, PinnedTable, TableIndex, fields_apart

FULL_TEXT = "Inverted"
FieldIds = Mapping[str, Sequence[int]]
"""Field ids of each column, as ``PinnedTable`` says."""


def fragments_in_doubt(index: TableIndex, fragments: Sequence[Fragment], field_ids: FieldIds) -> frozenset[int]:
    """Return the fragments in which a column of the index lies in another file than the first (case 1)."""
    ids = _fields(index, field_ids)
    return frozenset(f.fragment_id for f in fragments if fields_apart(f, ids))


def doubted_fragments(pinned: PinnedTable) -> dict[str, frozenset[int]]:
    """Return for each index the fragments to rewrite before it is extended."""
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
