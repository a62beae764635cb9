"""Keys that came through two regions: whose rows the table has of them, and what waits for a person's decision.

Of a table whose rows do not tell their region (``origin``) one primary key may come through two partitions, and nothing
says which of its rows is newer.  Such a key is *set aside*: one region at most is its *owner*, and what the table has of the
key is exactly what the owner's records make of it; what other regions' records did to it waits here, folded by region.

* An owner without anything that waits: the key is decided, and stays so while the owner's region counts (``origin``).
* Something that waits, and no owner: of the key the table has nothing from Kafka.

The object is immutable, named by the merge that wrote it (``conflicts_ref``): an Arrow IPC stream, a row for the operations of
each region that waits for a key, and one for each owner.  Its columns are those of the table, then

* ``_op``, ``_present``: as of a WAL batch; of an owner null,
* ``_region``: the region's name,
* ``_first``, ``_next``: positions between which the operations lie, as far as the generations tell that they came in; of an
  owner twice the position up to which its region had been merged when it was taken for the owner.

Guarantees
 1. ``read_conflicts`` gives what was written, or ``ObjectMissing`` or ``ObjectCorrupt`` that names the object.
 2. ``ConflictKeys.left_out`` is a function of the object, the contract and the operation's region and key alone: merges,
    readers and each of a job's tasks agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core import paths
from lancewal_core.errors import ObjectCorrupt, ObjectMissing
from lancewal_core.ids import Position, Region
from lancewal_core.keys.origin import NOT_KNOWN, Counts, MergedFrom
from lancewal_core.region.snapshot import side_rows
from lancewal_core.rows.fold import Folded, compose, fold_onto, operation_schema, operations_of
from lancewal_core.rows.key_set import KeySet, distinct
from lancewal_core.rows.schema import OP, PRESENT, Op, RowSchema
from lancewal_core.store.arrow_message import declared_stream
from lancewal_core.store.json_object import JsonFault, region_named
from lancewal_core.store.object_kinds import CONFLICTS_ROWS_BYTES_MAX
from lancewal_core.store.object_limits import check_unpacked, check_written
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.conflicts_ref import ConflictsRef

REGION = "_region"
FIRST = "_first"
NEXT = "_next"
KEYS_MAX = 10_000
"""Keys that wait at a time.  More are no accident of a few: producers key by something else than the primary key."""
_REGIONS_MAX = 100_000

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]


def conflict_schema(schema: RowSchema) -> pa.Schema:
    """Columns of the object."""
    return pa.schema(
        [
            *schema.table,
            pa.field(OP, pa.uint8()),
            pa.field(PRESENT, pa.binary()),
            pa.field(REGION, pa.string(), nullable=False),
            pa.field(FIRST, pa.int64(), nullable=False),
            pa.field(NEXT, pa.int64(), nullable=False),
        ]
    )


@dataclass(frozen=True)
class Conflicts:
    """What the object says; a value.  ``rows`` has the columns of ``conflict_schema``."""

    schema: RowSchema
    rows: pa.Table

    @staticmethod
    def none(schema: RowSchema) -> Conflicts:
        return Conflicts(schema, conflict_schema(schema).empty_table())

    @cached_property
    def owners(self) -> pa.Table:
        return self.rows.filter(pc.is_null(self.rows[OP])).combine_chunks()

    @cached_property
    def waiting(self) -> pa.Table:
        return self.rows.filter(pc.is_valid(self.rows[OP])).combine_chunks()

    @cached_property
    def waiting_keys(self) -> pa.Table:
        """Each once."""
        return distinct(self.waiting.select(list(self.schema.primary_key)), self.schema)

    @property
    def regions(self) -> tuple[Region, ...]:
        """Those of which something waits."""
        return tuple(sorted({region_named(name) for name in pc.unique(self.waiting[REGION]).to_pylist()}))

    def waiting_of(self, region: Region) -> pa.Table:
        """What waits of one region."""
        return self.waiting.filter(pc.equal(self.waiting[REGION], region.name)).combine_chunks()

    def folded(self, region: Region, keys: KeySet | None = None) -> Folded:
        """The same as states of keys; of these alone."""
        found = self.waiting_of(region)
        if keys is not None:
            found = found.filter(pa.array(keys.contains([found[name] for name in keys.names])))
        return fold_onto([], found, self.schema)

    def with_waiting(self, region: Region, more: Folded, first: Position, next_: Position) -> Conflicts:
        """Later operations of a region, read between these positions, wait too."""
        keys = KeySet(more.keys(self.schema).combine_chunks())
        if not len(keys):
            return self
        before = self.waiting_of(region)
        touched = before.filter(pa.array(keys.contains([before[name] for name in keys.names])))
        firsts = np.full(len(keys), int(first), np.int64)
        firsts[keys.places([touched[name] for name in keys.names])] = touched[FIRST].to_numpy()
        composed = compose([fold_onto([], touched, self.schema), more], self.schema)
        folded = operations_of(composed, self.schema)
        places = keys.places([folded[name] for name in keys.names])
        added = self._rows(folded, region, firsts[places], np.full(len(places), int(next_), np.int64))
        left = self._without(lambda rows: _is_of(rows, region) & ~_owner(rows), keys)
        return Conflicts(self.schema, pa.concat_tables([left, added]).combine_chunks())

    def with_owner(self, source: MergedFrom, keys: pa.Table) -> Conflicts:
        """These keys have this owner, and no other."""
        if not keys.num_rows:
            return self
        wanted = KeySet(keys.combine_chunks())
        left = self._without(_owner, wanted)
        blank = pa.Table.from_arrays(
            [
                keys[f.name].combine_chunks() if f.name in keys.column_names else pa.nulls(keys.num_rows, f.type)
                for f in operation_schema(self.schema)
            ],
            schema=pa.schema([f.with_nullable(f.name not in keys.column_names) for f in operation_schema(self.schema)]),
        )
        at = np.full(keys.num_rows, int(source.position), np.int64)
        return Conflicts(
            self.schema, pa.concat_tables([left, self._rows(blank, source.region, at, at)]).combine_chunks()
        )

    def decided(self, source: MergedFrom, keys: pa.Table) -> Conflicts:
        """Nothing waits of these keys any more, and this region owns them."""
        wanted = KeySet(keys.combine_chunks())
        return Conflicts(self.schema, self._without(lambda rows: ~_owner(rows), wanted)).with_owner(source, keys)

    def that_counts(self, counts: Counts) -> Conflicts:
        """Without keys of which nothing waits and the owner does not count any more: they may come through any region."""
        waits = KeySet(self.waiting_keys)
        counting = _owners_count(self.owners, counts)
        kept = counting | waits.contains([self.owners[name] for name in waits.names])
        if kept.all():
            return self
        return Conflicts(
            self.schema, pa.concat_tables([self.waiting, self.owners.filter(pa.array(kept))]).combine_chunks()
        )

    def _rows(self, operations: pa.Table, region: Region, first: Positions, next_: Positions) -> pa.Table:
        names = pa.array([region.name] * operations.num_rows, pa.string())
        columns = [*(column.combine_chunks() for column in operations.columns), names, pa.array(first), pa.array(next_)]
        return pa.Table.from_arrays(columns, schema=conflict_schema(self.schema))

    def _without(self, which: Callable[[pa.Table], Mask], keys: KeySet) -> pa.Table:
        """All rows but these of these keys."""
        gone = which(self.rows) & keys.contains([self.rows[name] for name in keys.names])
        return self.rows.filter(pa.array(~gone))


class ConflictKeys:
    """Which operations do not reach the table: those of keys in force, through another region than the owner."""

    def __init__(self, conflicts: Conflicts, counts: Counts) -> None:
        found = conflicts.that_counts(counts)
        names = list(conflicts.schema.primary_key)
        self._waiting = KeySet(found.waiting_keys)
        self._owned = KeySet(found.owners.select(names))
        self._owners: list[str] = found.owners[REGION].to_pylist()

    def __len__(self) -> int:
        """Keys that wait."""
        return len(self._waiting)

    def left_out(self, region: Region, keys: pa.Table) -> Mask:
        """Of operations of this region with these keys."""
        columns = [keys[name] for name in self._owned.names]
        places = self._owned.places(columns)
        others = np.array([name != region.name for name in self._owners] + [False], np.bool_)
        unowned = (places < 0) & self._waiting.contains(columns)
        return np.asarray(others[places] | unowned)

    def waits(self, keys: pa.Table) -> Mask:
        """Which of these keys wait for a decision."""
        return self._waiting.contains([keys[name] for name in self._waiting.names])


def encode_conflicts(conflicts: Conflicts, merge: str) -> tuple[bytes, ConflictsRef]:
    """The object of a merge, and what names it.  ``ObjectTooLarge`` for one larger than anybody would read."""
    sink = pa.BufferOutputStream()
    rows = conflicts.rows
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    data = sink.getvalue().to_pybytes()
    key = paths.conflicts_object(merge)
    check_written(key, len(data))
    check_unpacked(key, declared_stream(pa.py_buffer(data)).raw_bytes)
    return data, ConflictsRef(merge, len(data), hashlib.sha256(data).hexdigest(), conflicts.waiting_keys.num_rows)


def read_conflicts(store: ObjectStore, ref: ConflictsRef | None, schema: RowSchema) -> Conflicts:
    """What is in force where ``ref`` is named; None: nothing."""
    if ref is None:
        return Conflicts.none(schema)
    data = store.get(ref.key)
    if data is None:
        raise ObjectMissing(
            f"{ref.key} is missing: it has what waits of {ref.keys} keys in conflict; put it back, from a backup or the "
            "store's own versions",
            object=ref.key,
        )
    if len(data) != ref.size or hashlib.sha256(data).hexdigest() != ref.sha256:
        raise ObjectCorrupt(f"{ref.key} is corrupt: the table's commit names other bytes", object=ref.key)
    found = decode_conflicts(data, ref.key, schema)
    if found.waiting_keys.num_rows != ref.keys:
        raise ObjectCorrupt(f"{ref.key} is corrupt: the table's commit names {ref.keys} keys", object=ref.key)
    return found


def decode_conflicts(data: bytes, where: str, schema: RowSchema) -> Conflicts:
    """Inverse of ``encode_conflicts``; ``ObjectCorrupt`` for anything else, before more is unpacked than there may be."""
    try:
        rows = conflict_rows(data)
        wanted = conflict_schema(schema)
        if rows.schema.names != wanted.names:
            raise ObjectCorrupt(f"its columns are not {wanted.names}")
        rows = rows.cast(wanted).combine_chunks()
        rows.validate(full=True)
        _check(rows, schema)
    except (ObjectCorrupt, JsonFault, pa.ArrowException, ValueError, TypeError, OSError) as error:
        raise ObjectCorrupt(f"{where} is corrupt: {str(error)[:300]}", object=where) from error
    return Conflicts(schema, rows)


def conflict_rows(data: bytes) -> pa.Table:
    """The rows of the object, as its stream has them; errors and bounds as of ``snapshot.side_rows``."""
    if declared_stream(pa.py_buffer(data)).raw_bytes > CONFLICTS_ROWS_BYTES_MAX:
        raise ObjectCorrupt("it unpacks to more than any such object")
    return side_rows(data)


def check_regions(rows: pa.Table) -> list[Region]:
    """The regions that the rows name; ``JsonFault`` where one is none."""
    names = pc.unique(rows[REGION]).to_pylist()
    if len(names) > _REGIONS_MAX:
        raise ObjectCorrupt(f"it names {len(names)} regions")
    return [region_named(name) for name in names]


def _check(rows: pa.Table, schema: RowSchema) -> None:
    for field in rows.schema:
        if not field.nullable and rows[field.name].null_count:
            raise ObjectCorrupt(f"{field.name!r} holds nulls")
    check_regions(rows)
    ops = pc.fill_null(rows[OP], 255).to_numpy()
    owner = ops == 255
    if rows[OP].null_count != owner.sum() or (ops[~owner] > max(Op)).any():
        raise ObjectCorrupt("it holds unknown operations")
    lengths = pc.fill_null(pc.binary_length(rows[PRESENT]), -1).to_numpy()
    if (lengths != np.where(ops == Op.PATCH, schema.present_bytes, -1)).any():
        raise ObjectCorrupt("a bitmap is not that of a patch")
    first, next_ = rows[FIRST].to_numpy(), rows[NEXT].to_numpy()
    if (first < 0).any() or (np.where(owner, first != next_, first >= next_)).any():
        raise ObjectCorrupt("positions are not in order")
    names = list(schema.primary_key)
    for part, by in ((rows.filter(pa.array(owner)), names), (rows.filter(pa.array(~owner)), [*names, REGION])):
        if part.num_rows and part.group_by(by).aggregate([]).num_rows != part.num_rows:
            raise ObjectCorrupt("a key stands there twice")


def _owner(rows: pa.Table) -> Mask:
    return np.asarray(pc.is_null(rows[OP]).to_numpy(), np.bool_)


def _is_of(rows: pa.Table, region: Region) -> Mask:
    return np.asarray(pc.equal(rows[REGION], region.name).to_numpy(), np.bool_)


def _owners_count(owners: pa.Table, counts: Counts) -> Mask:
    """Which of them count; asked once for each region and position."""
    known: dict[tuple[str, int], bool] = {}
    found = np.zeros(owners.num_rows, np.bool_)
    for at, (name, position) in enumerate(zip(owners[REGION].to_pylist(), owners[NEXT].to_pylist(), strict=True)):
        if (name, position) not in known:
            known[name, position] = counts(MergedFrom(region_named(name), Position(position))) != NOT_KNOWN
        found[at] = known[name, position]
    return found
