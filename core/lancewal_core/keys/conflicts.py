"""Keys that came through two regions: who owns their rows in the table, and which operations wait for a person's
decision.

In a table whose rows do not tell their region (``origin``), one primary key may come through two partitions.  Nothing
then says which of its rows is newer.  Such a key is *set aside*, and one region at most is its *owner*.  The table
holds for the key exactly the result of the owner's records.  Operations of other regions on the key wait here, folded
by region.

* A key with an owner and no waiting operation is decided.  The decision ends when the contract names another topic,
  or a position in ``altered_at`` for the owner's partition that is at or above ``_merged`` (``origin``, guarantee 1).
* For a key with waiting operations and no owner, nothing from Kafka is in the table.

The object is immutable, and named by the merge that wrote it (``conflicts_ref``).  It has the length of its first
stream in eight bytes, little-endian, and two Arrow IPC streams.  The first stream has one row for each key and region
whose operations wait: the columns of the table, then

* ``_op``, ``_present``: as in a WAL batch,
* ``_region``: the region's name,
* ``_first``, ``_next``: positions between which the operations lie, as far as their generations tell.

The second stream has a row for each key with an owner: the key columns, ``_region``, and ``_merged``.  ``_merged`` is
the position up to which the region had been merged when it became the owner.

The first stream's schema has the metadata ``lancewal.field_ids``: ``RowSchema.ids`` as JSON.  Without it the columns are
those of the contract's version 1.

Guarantees
 1. ``read_conflicts`` returns what was written, or raises ``ObjectMissing`` or ``ObjectCorrupt`` that names the object.
 2. ``ConflictKeys.left_out`` depends only on the object, the contract, and the region and key of an operation.  So
    merges, readers and each of a job's tasks agree.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import ContractChanged, ObjectCorrupt, ObjectMissing
from lancewal_core.keys.origin import NOT_KNOWN, Counts, MergedFrom
from lancewal_core.names import paths
from lancewal_core.names.ids import Position, Region
from lancewal_core.region.flush_files import side_rows, side_stream, with_columns
from lancewal_core.rows.carry import trees
from lancewal_core.rows.column_types import storage_rows
from lancewal_core.rows.equal_cells import row_texts
from lancewal_core.rows.fold import Folded, compose, fold_onto, operation_schema, operations_of
from lancewal_core.rows.key_set import KeySet, distinct
from lancewal_core.rows.projection import rows_as
from lancewal_core.rows.schema import OP, PRESENT, Op, RowSchema
from lancewal_core.store.arrow_message import declared_stream
from lancewal_core.store.json_object import JsonFault, JsonObject, parse_value, region_named
from lancewal_core.store.object_kinds import CONFLICTS_ROWS_BYTES_MAX, check_unpacked, check_written
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.versioned import FIRST_VERSION
from lancewal_core.table.conflicts_ref import ConflictsRef
from lancewal_core.table.contract import Contract, read_contract_version

REGION = "_region"
FIRST = "_first"
NEXT = "_next"
MERGED = "_merged"
KEYS_FEW = 10_000
"""Number of keys up to which conflicts count as single mistakes.  If more keys wait, producers key by something other
than the primary key, and ingest stops partitions."""
KEYS_MAX = 4_000_000
"""Largest number of keys that may wait at a time.  There must be room for records that are durable before ingest has
stopped: sealed generations of two or more partitions, a million rows each."""
_BYTES_FEW = CONFLICTS_ROWS_BYTES_MAX // 4
"""Bytes of waiting rows up to which conflicts count as single mistakes.  With wide rows this limit is reached before
``KEYS_FEW``."""
_REGIONS_MAX = 100_000
_LENGTH_BYTES = 8
_FIELD_IDS = b"lancewal.field_ids"
_SHOWN = 20

Mask = npt.NDArray[np.bool_]


def _waiting_schema(schema: RowSchema) -> pa.Schema:
    return pa.schema(
        [*operation_schema(schema), _column(REGION, pa.string()), _column(FIRST, pa.int64()), _column(NEXT, pa.int64())]
    )


def _owner_schema(schema: RowSchema) -> pa.Schema:
    return pa.schema([*schema.key, _column(REGION, pa.string()), _column(MERGED, pa.int64())])


def _column(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


@dataclass(frozen=True)
class Conflicts:
    """Content of a conflicts object: the tables of its two streams."""

    schema: RowSchema
    waiting: pa.Table
    owners: pa.Table
    older_columns: bool = field(default=False, compare=False)
    """Whether the object was written with other columns than those of ``schema``."""

    @staticmethod
    def none(schema: RowSchema) -> Conflicts:
        return Conflicts(schema, _waiting_schema(schema).empty_table(), _owner_schema(schema).empty_table())

    def __bool__(self) -> bool:
        return bool(self.waiting.num_rows or self.owners.num_rows)

    @cached_property
    def waiting_keys(self) -> pa.Table:
        """Primary keys with waiting operations, each once."""
        return distinct(self.waiting.select(list(self.schema.primary_key)), self.schema)

    @property
    def regions(self) -> tuple[Region, ...]:
        """Regions that have waiting operations or own a key."""
        names = {name for part in (self.waiting, self.owners) for name in pc.unique(part[REGION]).to_pylist()}
        return tuple(sorted(map(region_named, names)))

    @property
    def stopped(self) -> tuple[Region, ...]:
        """Regions whose records ingest must not consume.

        The regions with the most waiting keys are stopped, until the others together have at most ``KEYS_FEW``.
        """
        counted = pc.value_counts(self.waiting[REGION]).to_pylist()
        counts = sorted(((one["counts"], one["values"]) for one in counted), key=lambda one: (-one[0], one[1]))
        left, few = self.waiting.num_rows, KEYS_FEW
        if self.waiting.nbytes > _BYTES_FEW:
            few = min(few, left * _BYTES_FEW // self.waiting.nbytes)
        found: list[Region] = []
        for keys, name in counts:
            if left <= few:
                break
            left -= keys
            found.append(region_named(name))
        return tuple(sorted(found))

    def waiting_of(self, region: Region) -> pa.Table:
        """Return the waiting operations of one region."""
        return self.waiting.filter(pc.equal(self.waiting[REGION], region.name)).combine_chunks()

    def _gated(self, region: Region, wanted: RowSchema) -> pa.Table:
        """Return the waiting operations of one region with the columns of the ``wanted`` contract.  If the contracts'
        columns differ and no rule carries them over, ``rows_as`` raises."""
        return rows_as(self.waiting_of(region), self.schema, wanted, lambda: f"what waits of partition {region.name}")

    def owned_by(self, region: Region) -> pa.Table:
        """Return the rows of ``owners`` in which this region is the owner."""
        return self.owners.filter(pc.equal(self.owners[REGION], region.name)).combine_chunks()

    def keys_of(self, region: Region) -> KeySet:
        """Return the keys for which operations of the region wait, and the keys that the region owns."""
        names = list(self.schema.primary_key)
        both = [self.waiting_of(region).select(names), self.owned_by(region).select(names)]
        return KeySet(distinct(pa.concat_tables(both), self.schema))

    def wait_below(self, region: Region, keys: pa.Table, position: Position) -> Mask:
        """Return a mask over ``keys``: True where operations of the region from below ``position`` wait, so that the
        table does not show them."""
        waiting = self.waiting_of(region)
        held = KeySet(waiting.select(list(self.schema.primary_key)))
        firsts = np.append(waiting[FIRST].to_numpy(), np.iinfo(np.int64).max)
        return np.asarray(firsts[held.places([keys[name] for name in held.names])] < position)

    def stand_of(self, keys: KeySet) -> Counter[str]:
        """Return the waiting operations and the owners of these keys, as counted texts.  If two results are equal,
        nothing has changed between the calls.
        """
        found: Counter[str] = Counter()
        for part, columns in ((self.waiting, [OP, REGION, FIRST, NEXT]), (self.owners, [REGION])):
            found.update(row_texts(part.filter(pa.array(_are(part, keys))).select([*keys.names, *columns])))
        return found

    def folded(self, region: Region, wanted: RowSchema, keys: KeySet | None = None) -> Folded:
        """Return the waiting operations of one region, folded, with the columns of the ``wanted`` contract.

        ``keys``: only operations on these keys; None: all.
        """
        found = self._gated(region, wanted)
        if keys is not None:
            found = found.filter(pa.array(keys.contains([found[name] for name in keys.names])))
        return fold_onto([], found, wanted)

    def with_waiting(self, region: Region, more: Folded, first: Position, next_: Position) -> Conflicts:
        """Return the conflicts with later operations of a region added to the waiting ones.

        The operations ``more`` lie between the positions ``first`` and ``next_``.
        """
        keys = KeySet(more.keys(self.schema).combine_chunks())
        if not len(keys):
            return self
        before = self._gated(region, self.schema)
        touched = before.filter(pa.array(keys.contains([before[name] for name in keys.names])))
        firsts = np.full(len(keys), int(first), np.int64)
        firsts[keys.places([touched[name] for name in keys.names])] = touched[FIRST].to_numpy()
        composed = compose([fold_onto([], touched, self.schema), more], self.schema)
        folded = operations_of(composed, self.schema)
        places = keys.places([folded[name] for name in keys.names])
        region_, nexts = pa.array([region.name] * len(places)), pa.array(np.full(len(places), int(next_), np.int64))
        columns = [*folded.combine_chunks().columns, region_, pa.array(firsts[places]), nexts]
        added = pa.table(columns, _waiting_schema(self.schema))
        left = self.waiting.filter(pa.array(~(_is_of(self.waiting, region) & _are(self.waiting, keys))))
        return replace(self, waiting=pa.concat_tables([left, added]).combine_chunks())

    def with_owner(self, source: MergedFrom, keys: pa.Table) -> Conflicts:
        """Return the conflicts with this region as the only owner of these keys."""
        if not keys.num_rows:
            return self
        left = self.owners.filter(pa.array(~_are(self.owners, KeySet(keys.combine_chunks()))))
        region, merged = [source.region.name] * keys.num_rows, [int(source.position)] * keys.num_rows
        columns = [*keys.select(list(self.schema.primary_key)).columns, pa.array(region, pa.string()), pa.array(merged)]
        added = pa.table(columns, _owner_schema(self.schema))
        return replace(self, owners=pa.concat_tables([left, added]).combine_chunks())

    def decided(self, source: MergedFrom, keys: pa.Table) -> Conflicts:
        """Return the conflicts after a person's decision: no operation on these keys waits, and this region owns the
        keys."""
        left = self.waiting.filter(pa.array(~_are(self.waiting, KeySet(keys.combine_chunks()))))
        return replace(self, waiting=left.combine_chunks()).with_owner(source, keys)

    def that_counts(self, counts: Counts) -> Conflicts:
        """Return the conflicts without keys that were decided and whose owner no longer counts under the contract.

        Records of such a key may come through any region.  ``counts``: see ``origin``.
        """
        waits = KeySet(self.waiting_keys)
        counting = _owners_count(self.owners, counts)
        kept = counting | _are(self.owners, waits)
        return self if kept.all() else replace(self, owners=self.owners.filter(pa.array(kept)).combine_chunks())


class ConflictKeys:
    """Keys in conflict, waiting or decided, without those whose owner no longer counts (``that_counts``).

    The table does not get operations on these keys that came through another region than the owner.
    """

    def __init__(self, conflicts: Conflicts, counts: Counts) -> None:
        found = conflicts.that_counts(counts)
        names = list(conflicts.schema.primary_key)
        self._waiting = KeySet(found.waiting_keys)
        self._owned = KeySet(found.owners.select(names))
        self._owners = found.owners[REGION].to_numpy()

    def __len__(self) -> int:
        """Return the number of keys that wait for a decision."""
        return len(self._waiting)

    def left_out(self, region: Region, keys: pa.Table) -> Mask:
        """Return a mask over ``keys``: True where the table does not get an operation of this region on the key."""
        columns = [keys[name] for name in self._owned.names]
        places = self._owned.places(columns)
        others = np.append(self._owners != region.name, False)
        unowned = (places < 0) & self._waiting.contains(columns)
        return np.asarray(others[places] | unowned)

    def owned(self, keys: pa.Table) -> Mask:
        """Return a mask over ``keys``: True where a key has an owner."""
        return self._owned.contains([keys[name] for name in self._owned.names])

    def waits(self, keys: pa.Table) -> Mask:
        """Return a mask over ``keys``: True where a key waits for a decision."""
        return self._waiting.contains([keys[name] for name in self._waiting.names])


def encode_conflicts(conflicts: Conflicts, merge: str) -> tuple[bytes, ConflictsRef]:
    """Encode the conflicts after a merge.  Return the object's bytes and a reference to the object.  Raises
    ``ObjectTooLarge`` if readers would refuse the object.
    """
    ids = conflicts.schema.ids
    waiting = conflicts.waiting.replace_schema_metadata({_FIELD_IDS: json.dumps(ids)} if ids else None)
    streams = [side_stream(waiting), side_stream(conflicts.owners)]
    data = b"".join([len(streams[0]).to_bytes(_LENGTH_BYTES, "little"), *streams])
    key = paths.conflicts_object(merge)
    check_written(key, len(data))
    check_unpacked(key, sum(declared_stream(pa.py_buffer(stream)).raw_bytes for stream in streams))
    sha256, keys = hashlib.sha256(data).hexdigest(), conflicts.waiting_keys.num_rows
    return data, ConflictsRef(merge, len(data), sha256, keys, conflicts.stopped)


def read_conflicts(store: ObjectStore, ref: ConflictsRef | None, contract: Contract) -> Conflicts:
    """Read the conflicts in the object ``ref``, with the columns of the contract.  If ``ref`` is None, there are no
    conflicts.
    """
    if ref is None:
        return Conflicts.none(contract.rows)
    data = store.get(ref.key)
    if data is None:
        raise ObjectMissing(
            f"{ref.key} is missing: it has the waiting operations of {ref.keys} keys in conflict; put it back, from a "
            "backup or the store's own versions",
            object=ref.key,
        )
    if len(data) != ref.size or hashlib.sha256(data).hexdigest() != ref.sha256:
        raise _corrupt(ref.key, "its bytes do not have the SHA-256 that the table's commit names")
    found = decode_as(data, ref.key, store, contract)
    if found.waiting_keys.num_rows != ref.keys:
        raise _corrupt(ref.key, f"it does not hold the {ref.keys} keys that the table's commit names")
    return found


def decode_as(data: bytes, where: str, store: ObjectStore, contract: Contract) -> Conflicts:
    """Decode keys in conflict as ``decode_conflicts`` does, with the columns of the contract.

    Raises ``ContractChanged`` if the object is of a newer contract.
    """
    written = _written(data, where, store, contract)
    found = decode_conflicts(data, where, written)
    waiting = rows_as(found.waiting, written, contract.rows, lambda: where)
    return replace(found, schema=contract.rows, waiting=waiting, older_columns=written != contract.rows)


def _written(data: bytes, where: str, store: ObjectStore, contract: Contract) -> RowSchema:
    """Return the columns of the waiting operations, as the object's first stream names them.

    Raises ``ObjectCorrupt`` for ids or columns that no merge writes.
    """
    rows = contract.rows
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)[_LENGTH_BYTES:]) as stream:
            schema = stream.schema
    except (pa.ArrowException, OSError):
        return rows  # ``decode_conflicts`` says what is wrong
    ids = (schema.metadata or {}).get(_FIELD_IDS)
    if ids is None:
        return rows if contract.columns_unchanged else read_contract_version(store, contract, FIRST_VERSION).rows
    columns = pa.schema(list(schema)[: len(rows.columns) - len(_waiting_schema(rows))])
    try:
        lists = JsonObject({"ids": parse_value(ids)}).values("ids")
        found = RowSchema(
            columns,
            rows.primary_key,
            rows.region_key,
            tuple(tuple(JsonObject({"ids": own}).wholes("ids")) for own in lists),
        )
        trees(found)
    except (JsonFault, ValueError) as error:
        raise _corrupt(where, f"its ids of fields cannot be read: {error}") from error
    if len(set(columns.names)) != len(columns) or not set(rows.primary_key).issubset(columns.names):
        raise _corrupt(where, f"no object of keys in conflict has the columns {columns.names[:_SHOWN]}")
    newest = contract.highest_field_id or max(contract.field_ids, default=-1)
    if any(id_ > newest for own in found.ids for id_ in own):
        raise ContractChanged(
            f"{where} has columns of a newer contract than version {contract.version}, which this process knows: open "
            "the table again to read the newest contract",
            object=where,
        )
    return found


def decode_conflicts(data: bytes, where: str, schema: RowSchema) -> Conflicts:
    """Decode the bytes that ``encode_conflicts`` returned.  Raises ``ObjectCorrupt`` for anything else, before more is
    decompressed than an object may contain.
    """
    try:
        waiting, owners = conflict_rows(data)
        found = Conflicts(schema, _as(_waiting_schema(schema), waiting), _as(_owner_schema(schema), owners))
        _check(found)
    except (ObjectCorrupt, JsonFault, pa.ArrowException, ValueError, TypeError, OSError) as error:
        raise _corrupt(where, str(error)[:300]) from error
    return found


def conflict_rows(data: bytes) -> tuple[pa.Table, pa.Table]:
    """Return the waiting operations and the owners, as the object's streams have them.  Errors and memory bounds are
    those of ``flush_files.side_rows``."""
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    if start > len(data):
        raise ObjectCorrupt("its first stream ends after the object's end")
    streams = data[_LENGTH_BYTES:start], data[start:]
    if sum(declared_stream(pa.py_buffer(stream)).raw_bytes for stream in streams) > CONFLICTS_ROWS_BYTES_MAX:
        raise ObjectCorrupt("it unpacks to more bytes than any such object")
    return side_rows(streams[0]), side_rows(streams[1])


def _corrupt(where: str, problem: str) -> ObjectCorrupt:
    return ObjectCorrupt(f"{where} is corrupt: {problem}", object=where)


def _as(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    rows = with_columns(rows, schema).combine_chunks()
    if len(pc.unique(rows[REGION])) > _REGIONS_MAX:
        raise ObjectCorrupt("it names too many regions")
    for name in pc.unique(rows[REGION]).to_pylist():
        region_named(name)
    return rows


def _check(found: Conflicts) -> None:
    waiting, names = found.waiting, list(found.schema.primary_key)
    ops = waiting[OP].to_numpy()
    if (ops > max(Op)).any():
        raise ObjectCorrupt("it holds unknown operations")
    lengths = pc.fill_null(pc.binary_length(waiting[PRESENT]), -1).to_numpy()
    if (lengths != np.where(ops == Op.PATCH, found.schema.present_bytes, -1)).any():
        raise ObjectCorrupt("a bitmap is not that of a patch")
    first, next_, merged = waiting[FIRST].to_numpy(), waiting[NEXT].to_numpy(), found.owners[MERGED].to_numpy()
    if (first < 0).any() or (first >= next_).any() or (merged < 0).any():
        raise ObjectCorrupt("a position is negative, or the first position of an operation is not below its next")
    for part, by in ((found.owners, names), (waiting, [*names, REGION])):
        if part.num_rows and storage_rows(part.select(by)).group_by(by).aggregate([]).num_rows != part.num_rows:
            raise ObjectCorrupt("a key is listed twice")


def _are(rows: pa.Table, keys: KeySet) -> Mask:
    return keys.contains([rows[name] for name in keys.names])


def _is_of(rows: pa.Table, region: Region) -> Mask:
    return np.asarray(pc.equal(rows[REGION], region.name).to_numpy(), np.bool_)


def _owners_count(owners: pa.Table, counts: Counts) -> Mask:
    """Return a mask over ``owners``: True where the owner's region still counts (guarantee 1 of ``origin``).

    ``counts`` is called once for each distinct region and position.
    """
    known: dict[tuple[str, int], bool] = {}
    found = np.zeros(owners.num_rows, np.bool_)
    for at, (name, position) in enumerate(zip(owners[REGION].to_pylist(), owners[MERGED].to_pylist(), strict=True)):
        if (name, position) not in known:
            known[name, position] = counts(MergedFrom(region_named(name), Position(position))) != NOT_KNOWN
        found[at] = known[name, position]
    return found
