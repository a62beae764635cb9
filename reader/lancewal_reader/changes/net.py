"""The changes between two states of the table: at most one for each key.

Guarantees
 1. If the pairs are applied to the first state, the result is the second state, cell by cell.  Each key has at most one
    pair.  A key whose wanted cells are equal in both states has none.
 2. The pairs follow from the two states alone, not from how they are stored: which of their rows are merged, in which
    fragments they lie, and how they got there.
 3. Rows that both states have in common are not read, as far as ``between`` knows them.

Steps
 1. ``between`` says which merged rows the two versions do not share: those that are *gone*, and those that have *come*.
 2. A key may have changed in three cases.  First, a row that is gone or has come has the key.  Second, a state has an
    unmerged record of it after the other state's positions.  Third, the versions have merged different records of a
    region, and the state that has merged less has unmerged records of the key.  A key that was merged and then
    deleted leaves no other trace.  All other keys have the same row in both states.  Either state may be the older
    one, region by region.
 3. A row that has come is an insert if neither a gone row nor an unmerged record has its key.  Inserts are read in
    batches.
 4. All other keys are held in memory.  Their rows in both states are looked up and compared, also in batches.  The
    addresses of gone rows, and of rows that have come, are known; others are looked up in the key index.

``TooManyUnmerged``: more keys than ``unmerged_keys_max`` would be held.  ``DuplicateKeys``: a state is found to show a key
twice, since another program has written it.  Once the flusher has hidden the older row, later states show it once.  Rows of
a new key that another program appends twice are inserts both, as a read of the second state shows both.

If the table's rows do not tell their partition, a record may also change what a read shows of earlier records of its
key.  All unmerged keys of both states are then compared.  They are also compared if the first state lacks columns of
the second one.  Then rows that are unmerged in both states are null in these columns in the first state alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import DuplicateKeys, TooManyUnmerged
from lancewal_core.names.ids import Position
from lancewal_core.rows.key_set import KeySet, distinct
from lancewal_core.rows.projection import project
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.protocol import PinnedTable
from lancewal_reader.changes.between import Between, between
from lancewal_reader.changes.cells import Addresses
from lancewal_reader.changes.pairs import Pairs, aligned
from lancewal_reader.changes.side import Side
from lancewal_reader.changes.trace import Untraced
from lancewal_reader.plan.strong import RegionDelta
from lancewal_reader.reading.scan import batch_rows
from lancewal_reader.unmerged.completed import FindAddresses

_NONE = np.zeros(0, np.uint64)
_NAMED = 5
"""Largest number of fragments of a version, and of versions, that a message names."""
_UNKNOWN = np.uint64(2**64 - 1)
"""Stands for an address that is not known.  No row has it: a fragment has fewer rows."""


def net(before: Side, after: Side, columns: Sequence[str]) -> Iterator[Pairs]:
    """Yield the pairs of rows that differ in ``columns`` between ``before`` and ``after``.

    The rows have these columns and the primary key.  Both sides must have the columns of the feed.
    """
    changed = _Changed(before, after, columns)
    yield from changed.inserts()
    for pairs in changed.others():
        yield pairs.differing(columns)


class _Changed:
    """The keys that may have changed between two states."""

    def __init__(self, before: Side, after: Side, needed: Sequence[str]) -> None:
        rows = after.rows
        wanted = {*needed, *rows.primary_key}
        self.before, self.after = before, after
        self.key = list(rows.primary_key)
        self.names = [name for name in rows.table.names if name in wanted]
        self.projected = project(rows, self.names)
        self.batch_rows = batch_rows(self.projected.table)
        found = _between(before, after, self.names)
        self.come, self._untraced = found.come, found.untraced
        # Step 2
        self._check_count(len(found.gone))
        gone_keys = before.pinned.take(pa.array(found.gone), self.key).cast(rows.key)
        touched = _touched(before, after)
        self._check_count(len(found.gone) + touched.num_rows)
        keys = distinct(pa.concat_tables([gone_keys, touched]), rows)
        self.keys = KeySet(keys)
        self.gone_at = np.full(len(self.keys), _UNKNOWN)
        """For each key the address of its gone row; ``_UNKNOWN`` if none is known."""
        self.come_at = self.gone_at.copy()
        """For each key the address of its row that has come; ``_UNKNOWN`` if none is known."""
        places = self.keys.places([gone_keys[name] for name in self.key])
        if len(np.unique(places)) < len(places):
            raise _twice(before)
        self.gone_at[places] = found.gone
        self._unmerged = [KeySet(_unmerged_keys(side, self.projected)) for side in (before, after)]
        self._more: list[tuple[pa.Table, Addresses]] = []
        """Keys with an unmerged record whose row has come, and that are not among ``keys``; with the rows' addresses."""

    def inserts(self) -> Iterator[Pairs]:
        """Yield the new rows that replace no row (step 3).  Note the addresses of the other new rows."""
        held = len(self.keys)
        for begin in range(0, len(self.come), self.batch_rows):
            come = self.come[begin : begin + self.batch_rows]
            keys = self.after.pinned.take(pa.array(come), self.key).cast(self.after.rows.key).combine_chunks()
            columns = [keys[name] for name in self.key]
            places = self.keys.places(columns)
            known = places >= 0
            twice = len(np.unique(places[known])) < int(known.sum())
            if twice or (self.come_at[places[known]] != _UNKNOWN).any():
                raise _twice(self.after)
            self.come_at[places[known]] = come[known]
            unmerged = ~known & (self._unmerged[0].contains(columns) | self._unmerged[1].contains(columns))
            if unmerged.any():
                self._more.append((keys.filter(pa.array(unmerged)), come[unmerged]))
                held += int(unmerged.sum())
                self._check_count(held)
            new = come[~known & ~unmerged]
            if len(new):
                rows = self.after.pinned.take(pa.array(new), self.names).cast(self.projected.table)
                absent = self.projected.table.empty_table().take(pa.nulls(len(new), pa.int64()))
                yield Pairs(absent, rows, np.zeros(len(new), np.bool_), np.ones(len(new), np.bool_), pa.table({}))

    def others(self) -> Iterator[Pairs]:
        """Yield the rows of all other keys that may have changed (step 4)."""
        keys = pa.concat_tables(
            [self.keys.table.cast(self.after.rows.key), *(keys for keys, _ in self._more)]
        ).combine_chunks()
        come_at = np.concatenate([self.come_at, *(come for _, come in self._more)])
        gone_at = np.full(len(come_at), _UNKNOWN)
        gone_at[: len(self.gone_at)] = self.gone_at
        if not len(come_at):
            return
        all_keys = KeySet(keys)
        find_before = _known(all_keys, gone_at, come_at, self.before.find)
        find_after = _known(all_keys, come_at, gone_at, self.after.find)
        for begin in range(0, keys.num_rows, self.batch_rows):
            some = keys.slice(begin, self.batch_rows)
            before, had = self._rows_of(self.before, some, find_before)
            after, has = self._rows_of(self.after, some, find_after)
            yield Pairs(before, after, had, has, pa.table({}))

    def _rows_of(self, side: Side, keys: pa.Table, find: FindAddresses) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
        rows = side.rows_of(keys, self.names, find)
        places = KeySet(keys).places([rows[name] for name in self.key])
        if len(np.unique(places)) < len(places):
            raise _twice(side)
        return aligned(rows, places, keys.num_rows)

    def _check_count(self, keys: int) -> None:
        keys_max = self.after.context.keys_max
        if keys > keys_max:
            raise TooManyUnmerged(
                f"at least {keys:,} keys may have changed between the two points, and this reader holds {keys_max:,} of them "
                f"in memory. {_why_so_many(self._untraced)}Set unmerged_keys_max to at least {keys:,}, or ask for the changes "
                "of shorter ranges",
                keys_max=keys_max,
            )


def _between(before: Side, after: Side, names: Sequence[str]) -> Between:
    if before.plan.branch == after.plan.branch and before.plan.version == after.plan.version:
        return Between(_NONE, _NONE)
    found = between(after.context, before.stored, after.stored, after.rows, names)
    if found.compared_fragments:
        after.compared[before.plan.version, after.plan.version] = found.compared_fragments
    return found


def _touched(before: Side, after: Side) -> pa.Table:
    """Return the keys that records after the first state may have changed, and that ``between`` does not know (step 2)."""
    rows, keys = after.rows, project(after.rows, ())
    if not after.context.folding.by_regions or before.lacking:
        return distinct(pa.concat_tables([_unmerged_keys(side, keys) for side in (before, after)]), rows)
    found = [_keys_of(one, _beyond(one, other), keys) for one, other in ((before, after), (after, before))]
    return distinct(pa.concat_tables(found), rows)


def _beyond(one: Side, other: Side) -> list[RegionDelta]:
    """Return the unmerged records of a state that may change keys against another state (step 2)."""
    found = []
    for delta in one.plan.deltas:
        region = delta.region
        here, there = (side.plan.in_force.position(region) or Position(0) for side in (one, other))
        reached = Position(0) if here < there else other.plan.cut.get(region, Position(0))
        sources = tuple(source for source in delta.sources if source.next > reached)
        if sources:
            found.append(RegionDelta(region, sources, delta.cut))
    return found


def _keys_of(side: Side, deltas: Sequence[RegionDelta], keys: RowSchema) -> pa.Table:
    if not deltas:
        return side.rows.key.empty_table()
    loaded = side.context.folding.fold(side.context, deltas, keys, side.plan.in_force.conflicts, None)
    return loaded.folded.keys(side.rows).cast(side.rows.key)


def _unmerged_keys(side: Side, projected: RowSchema) -> pa.Table:
    return side.load(projected).mask.table.cast(side.rows.key) if side.plan.has_delta else side.rows.key.empty_table()


def _known(known_keys: KeySet, here: Addresses, elsewhere: Addresses, find: FindAddresses) -> FindAddresses:
    """Return a function that finds the addresses of rows of ``known_keys`` in one of two versions.

    ``here``: for each key the address of its row that only this version has.  ``elsewhere``: the same for the other
    version.  ``find`` looks up keys without an address in either.  A key with an address in ``elsewhere`` alone has
    no row in this version.  Otherwise the other version would share that row, and show the key twice."""

    def found(pinned: PinnedTable, keys: pa.Table) -> Addresses:
        places = known_keys.places([keys[name] for name in known_keys.names])
        addresses = here[places]
        known = addresses != _UNKNOWN
        left = ~known & (elsewhere[places] == _UNKNOWN)
        more = find(pinned, keys.filter(pa.array(left))) if left.any() else _NONE
        return np.concatenate([addresses[known], more])

    return found


def _why_so_many(untraced: Sequence[Untraced]) -> str:
    """Return sentences about fragments whose rows all count as changed; empty if there are none."""
    if not untraced:
        return ""
    groups: dict[tuple[int | None, str], list[int]] = {}
    for one in untraced:
        groups.setdefault((one.version, one.why), []).append(one.fragment_id)
    told = []
    for (version, why), ids in [*groups.items()][:_NAMED]:
        ends_with = f" and {len(ids) - _NAMED} others" if len(ids) > _NAMED else ""
        named = f"{', '.join(map(str, ids[:_NAMED]))}{ends_with}"
        where = "" if version is None else f"table version {version} lacks them, and "
        told.append(f"{named} ({where}{why})")
    more = f"; {len(groups) - _NAMED} versions more" if len(groups) > _NAMED else ""
    return (
        "Nothing shows where the rows of some fragments went, so all of these rows count as changed: "
        f"fragments {'; fragments '.join(told)}{more}. A range that does not cross these versions has fewer. "
    )


def _twice(side: Side) -> DuplicateKeys:
    return DuplicateKeys(
        f"version {side.plan.version} of the table shows a primary key twice, since another program has written it. The "
        "flusher hides the older row with its next merge: ask for the changes from or to a later state",
        version=side.plan.version,
    )
