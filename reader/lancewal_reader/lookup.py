"""Lookups: the rows of given primary keys, and how many rows there are, without a scan of what the key index covers.

Guarantees
 1. ``lookup_plan`` gives exactly those rows of the plan (``scan``) whose key is among the keys, in the order of the keys.
 2. ``count_plan`` is as many as ``scan`` gives rows.

Steps of 1
 1. The plan's unmerged rows are folded as for a scan.  A key among them is answered by them alone, also with nothing where it
    is deleted: its rows in the table are superseded.
 2. All others are looked up in the key index that the flusher keeps up: it names rows of the pinned version, and fragments
    that it does not cover, which are scanned.  Rows that a deletion vector hides are left out.
 3. Rows are taken by their address.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from threading import Lock
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.live import find_live
from lancewal_core.keys.parts import MappedParts
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.rows.fold import divide
from lancewal_core.rows.key_set import KeySet
from lancewal_core.rows.projection import project
from lancewal_core.rows.schema import RowSchema
from lancewal_core.store.obstore import local_folder
from lancewal_core.table.protocol import PinnedTable
from lancewal_reader.forms.narrow_times import PER_SECOND
from lancewal_reader.plan.strong import ReadPlan
from lancewal_reader.scan import result_schema
from lancewal_reader.unmerged import DeltaContext, FindAddresses, complete_rows, load

_PARTS_BYTES_MAX = 4 << 30
"""Of files of the key index, mapped and not in memory; those of a far store lie in a folder for temporary files."""


class KeyLookup:
    """The key index of an open table, made when it is first asked; threads take turns."""

    def __init__(self, opened: OpenedTable, uri: str) -> None:
        self._opened = opened
        self._uri = uri
        self._index: KeyIndex | None = None
        self._lock = Lock()

    def addresses(self, pinned: PinnedTable, keys: pa.Table) -> npt.NDArray[np.uint64]:
        """``FindAddresses``, without a scan of what the index covers."""
        if not keys.num_rows:
            return np.zeros(0, np.uint64)
        with self._lock:
            if self._index is None:
                self._index = self._made()
            found = self._index.find(pinned, keys)
        live = find_live(pinned, KeySet(keys), found)
        parts = [np.uint64(fragment << 32) | rows.rows.astype(np.uint64) for fragment, rows in live.items()]
        return np.concatenate([np.zeros(0, np.uint64), *parts])

    def _made(self) -> KeyIndex:
        opened, root = self._opened, local_folder(self._uri)
        folder = Path(tempfile.mkdtemp(prefix=f"lancewal-lookup-{os.getpid()}-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        parts = MappedParts(opened.store, root, folder, _PARTS_BYTES_MAX)
        return KeyIndex(KeyCatalogs(opened.store, opened.clock), parts, opened.tasks)


def lookup_plan(
    context: DeltaContext,
    find: FindAddresses,
    pinned: PinnedTable,
    plan: ReadPlan,
    columns: Sequence[str],
    keys: pa.Table,
) -> pa.Table:
    """See the module docstring; ``keys``: distinct, in the columns of the primary key."""
    whole = context.contract.rows
    names = list(whole.primary_key)
    projected, sought = project(whole, columns), KeySet(keys)
    # Step 1
    unmerged = projected.table.empty_table()
    others = np.ones(keys.num_rows, np.bool_)
    if any(delta.sources for delta in plan.deltas):
        loaded = load(context, plan.deltas, projected, plan.in_force.conflicts)
        others = ~loaded.mask.contains([keys[name] for name in names])
        unmerged = complete_rows(divide(loaded.folded, sought)[0], pinned, projected, find)
    # Steps 2, 3
    addresses = find(pinned, keys.filter(pa.array(others)))
    base = projected.table.empty_table()
    if len(addresses):
        base = pinned.take(pa.array(addresses), projected.table.names).cast(projected.table)
    rows = pa.concat_tables([base, unmerged.cast(projected.table)])
    order = np.argsort(sought.places([rows[name] for name in names]), kind="stable")
    return rows.take(pa.array(order)).select(list(columns)).cast(result_schema(whole, columns))


def count_plan(context: DeltaContext, find: FindAddresses, pinned: PinnedTable, plan: ReadPlan) -> int:
    """Rows of the plan: those of the table, without those that unmerged keys supersede, and the unmerged ones."""
    merged = sum(fragment.live_rows for fragment in pinned.fragments())
    if not any(delta.sources for delta in plan.deltas):
        return merged
    projected = project(context.contract.rows, ())
    loaded = load(context, plan.deltas, projected, plan.in_force.conflicts)
    superseded = len(find(pinned, loaded.folded.keys(projected)))
    return merged - superseded + int(complete_rows(loaded.folded, pinned, projected, find).num_rows)


def keys_of(schema: RowSchema, keys: object) -> pa.Table:
    """What a user gave, each key once, in order of the first time; ``InvalidInput`` where it is no list of keys."""
    names = list(schema.primary_key)
    if hasattr(keys, "columns") and hasattr(keys, "__arrow_c_stream__"):  # a DataFrame, which is a list of its names
        keys = pa.table(keys)
    if isinstance(keys, pa.Table | pa.RecordBatch):
        lacking = [name for name in names if name not in keys.schema.names]
        if lacking:
            raise InvalidInput(
                f"keys: column {lacking[0]!r} of the primary key {names} is not among {keys.schema.names}"
            )
        columns = [keys.column(name) for name in names]
    else:
        columns = _columns(names, keys)
    arrays = [_array(schema, name, column) for name, column in zip(names, columns, strict=True)]
    table = pa.table(arrays, schema=schema.key)
    numbered = table.append_column("_at", pa.array(np.arange(table.num_rows)))
    first = numbered.group_by(names).aggregate([("_at", "min")]).column("_at_min").combine_chunks()
    return table.take(pa.array(np.sort(np.asarray(first))))


def _columns(names: Sequence[str], keys: object) -> list[list[object]]:
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise InvalidInput(f"keys: expected a list of keys, not {keys!r}; of one key write [key]")
    rows: list[Sequence[object]] = []
    for key in keys:
        if isinstance(key, Mapping):
            if set(key) != set(names):
                raise InvalidInput(f"keys: {key!r} does not name the columns of the primary key, {names}")
            rows.append([key[name] for name in names])
        elif isinstance(key, tuple | list):
            rows.append(key)
        else:
            rows.append([key])
        if len(rows[-1]) != len(names):
            raise InvalidInput(f"keys: {key!r} has {len(rows[-1])} values, the primary key is {names}")
    return [[row[n] for row in rows] for n in range(len(names))]


def _array(schema: RowSchema, name: str, column: object) -> pa.Array:
    type_ = schema.table.field(name).type
    try:
        array, as_given = (
            _cast(column, type_) if isinstance(column, pa.Array | pa.ChunkedArray) else _made(column, type_)
        )
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise InvalidInput(f"keys: column {name!r} takes {type_}: {error}") from error
    if array.null_count:
        raise InvalidInput(f"keys: a key has no value in column {name!r}")
    if not as_given:
        raise InvalidInput(
            f"keys: column {name!r} takes {type_}, which does not hold a value as it was given: no row has it"
        )
    return array


def _cast(column: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> tuple[pa.Array, bool]:
    """In the type of the key, and whether nothing is lost by that: a date has no time of day, a bool no 2."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    fitted = array.cast(type_)
    return fitted, bool(array.type == type_ or fitted.cast(array.type).equals(array))


def _made(values: object, type_: pa.DataType) -> tuple[pa.Array, bool]:
    given = [value.as_py() if isinstance(value, pa.Scalar) else value for value in cast("list[object]", values)]
    made = pa.array(given, type_)
    return made, all(_is_exact(value, type_) for value in given)


def _is_exact(value: Any, type_: pa.DataType) -> bool:
    """Whether Arrow has taken a value as it is: fractions, of numbers and of times, it cuts off without a word."""
    if isinstance(value, datetime):
        cut = value.microsecond * 1000 + getattr(value, "nanosecond", 0)  # as times of pandas have
        if pa.types.is_timestamp(type_):
            return bool(cut % (10**9 // PER_SECOND[type_.unit]) == 0)
        return (value.hour, value.minute, value.second, cut) == (0, 0, 0, 0)
    if pa.types.is_integer(type_) and type(value) is not int:
        return value is None or bool(value == int(value))
    return True
