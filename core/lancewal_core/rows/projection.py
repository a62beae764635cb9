"""Rows with other columns than they were written with.

``rows_as`` is the one gate between rows and the contract that they are used under.  All code that folds or composes
rows takes them from it, mostly through ``OpenedTable``.  These say under which contract version rows were written:

* an entry, for its own rows (``contract_version``),
* the manifest of a flush, for all its parts,
* an object of conflicts, by the ids of its fields; without ids its columns are those of contract version 1
  (``keys.conflicts``).

Flushes are read with the columns that they were written with (``OpenedTable.columns_of``).  They pass the gate after
that, since a difference of columns is not damage.

Promises:

 1. Rows whose columns and keys equal the wanted ones are returned unchanged: the same object, at the cost of a
    comparison.  A change of the contract that leaves the columns alone is such a case.
 2. Other rows are carried over to the wanted columns field by field, by the ids of the fields (``rows.carry``).
 3. Rows that cannot be carried over raise ``ContractMismatch``, which names them; they are never read as something
    else.
 4. No generation is sealed because of the gate: entries of several contracts may lie in one generation.

``project_rows`` takes some columns of WAL batches and Partial rows, after the gate.  The bitmaps of patches are in the
contract's column order, so they are rewritten for the columns taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa

from lancewal_core.errors import ContractMismatch
from lancewal_core.rows.carry import Carry, carry
from lancewal_core.rows.fold import Folded, bitmaps, present_bits
from lancewal_core.rows.row_range import RowRange
from lancewal_core.rows.schema import PRESENT, RowSchema

Rows = TypeVar("Rows")


def rows_as(rows: Rows, written: RowSchema, wanted: RowSchema, where: Callable[[], str]) -> Rows:
    """Return rows that were ``written`` under one contract in the form of the ``wanted`` contract, the same or a later
    one.

    ``rows`` is a WAL batch, a range of one, a table of them, or a fold.  ``where`` names the rows in messages.
    ``ContractMismatch`` names the first column that cannot become the wanted one.
    """
    if written is wanted or written == wanted:
        return rows
    way = carry(written, wanted)
    if way is None:
        raise ContractMismatch(
            f"{where()} has rows of another contract: {_difference(written, wanted)}. Read them with a release that "
            "knows both contracts"
        )
    return _carried(rows, written, way)


def _carried(rows: Rows, written: RowSchema, way: Carry) -> Rows:
    if isinstance(rows, Folded):
        more = {"rows": _carried(rows.rows, written, way), "partials": _carried(rows.partials, written, way)}
        return replace(rows, **more)
    if isinstance(rows, RowRange):
        return cast("Rows", RowRange.whole(_carried(rows.rows, written, way)))
    assert isinstance(rows, pa.Table | pa.RecordBatch)
    others = [place for place, name in enumerate(rows.schema.names) if name not in set(written.columns.names)]
    fields = [*way.wanted.table, *(rows.schema.field(place) for place in others)]
    columns = way.columns(rows)
    for place in others:
        column = rows.column(place)
        columns.append(_repack(column, written, way.places) if rows.schema.names[place] == PRESENT else column)
    found: Rows = type(rows).from_arrays(columns, schema=pa.schema(fields))
    return found


def _difference(written: RowSchema, wanted: RowSchema) -> str:
    for name in dict.fromkeys([*written.columns.names, *wanted.columns.names]):
        types = [str(s.columns.field(name).type) if name in s.columns.names else "absent" for s in (written, wanted)]
        if types[0] != types[1]:
            return f"column {name!r} was written as {types[0]}, the table's contract has {types[1]}"
    return (
        f"columns {written.columns.names} with keys {[*written.primary_key, *written.region_key]} were written, the table's "
        f"contract has {wanted.columns.names} with {[*wanted.primary_key, *wanted.region_key]}"
    )


def project(schema: RowSchema, columns: Collection[str]) -> RowSchema:
    """Return the schema with these columns and those of the primary key, in the contract's order."""
    wanted = set(columns) | set(schema.primary_key)
    kept = pa.schema([f for f in schema.columns if f.name in wanted])
    if len(kept) == len(schema.columns):
        return schema
    ids = (
        tuple(own for f, own in zip(schema.columns, schema.ids, strict=True) if f.name in wanted) if schema.ids else ()
    )
    return RowSchema(kept, schema.primary_key, schema.region_key, ids)


def written_for(written: RowSchema, projected: RowSchema) -> RowSchema:
    """Return the columns of ``written`` that become the columns ``projected`` of the same or a later contract, and
    those of the primary key."""
    way = carry(written, projected)
    names = projected.columns.names if way is None else [old.name for old, _ in way.sources if old is not None]
    return project(written, names)


def project_rows(rows: pa.RecordBatch | pa.Table, schema: RowSchema, projected: RowSchema) -> pa.RecordBatch | pa.Table:
    """Return the rows with the columns of ``projected``, in the order of ``projected``, which may be another one.
    System columns stay; ``_present`` is rewritten for these columns.  ``schema``: the columns that ``rows`` has."""
    if projected is schema:
        return rows
    columns = set(schema.columns.names)
    system = [name for name in rows.schema.names if name not in columns]
    kept = rows.select([*projected.columns.names, *system])
    at = kept.schema.get_field_index(PRESENT)
    present = kept.column(at)
    places = [schema.columns.get_field_index(name) for name in projected.columns.names]
    return kept.set_column(at, kept.schema.field(at), _repack(present, schema, places))


def _repack(present: pa.Array | pa.ChunkedArray, schema: RowSchema, places: Sequence[int]) -> pa.Array:
    """Rewrite the bitmaps of patches.  Bit i of the result is the bit of the column ``places[i]``, or 0 if that place
    is -1.

    Producers set few combinations of columns, so each distinct bitmap is rewritten once.
    """
    if isinstance(present, pa.ChunkedArray):
        present = present.combine_chunks()
    if present.null_count == len(present):
        return present
    coded = present.dictionary_encode()
    bits = present_bits(coded.dictionary, schema)
    bits = np.append(bits, np.zeros((len(bits), 1), np.bool_), axis=1)[:, places]
    return bitmaps(bits).take(coded.indices)
