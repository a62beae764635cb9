"""Fold and compose: the result of a sequence of operations for each key.

The order of a region's records is Kafka's offset order, nothing else.  Each key is in state **Row**, **Gone** or
**Partial** (patches whose base is not known here):

====================  ==============  ============================  =================================  ============
operation             on nothing      on Row r                      on Gone                            on Partial q
====================  ==============  ============================  =================================  ============
upsert u              Row(u)          Row(u)                        Row(u)                             Row(u)
delete                Gone            Gone                          Gone                               Gone
patch p               Partial(p)      Row(r overlaid by p)          Row(nulls overlaid by p)           Partial(q overlaid by p)
====================  ==============  ============================  =================================  ============

Guarantees
 1. ``fold`` of a concatenation equals ``compose`` of the folds of its parts, wherever it is cut.
 2. Only a Partial is ever completed from the table (``complete``).  With a base row b it becomes Row(b overlaid by p),
    without one Row(nulls overlaid by p).
 3. Each key is in exactly one of the three parts of a ``Folded``, once.

The work is columnar.  ``fold`` finds the last upsert or delete of each key.  Then it finds for each column the last
operation, at or after that one, that carries the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.rows.column_types import integer_like, storage
from lancewal_core.rows.key_set import KeySet, integers
from lancewal_core.rows.schema import OP, PRESENT, Op, RowSchema

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Folded:
    """State of every key that the folded operations touch."""

    rows: pa.Table
    """Keys in state Row; columns of ``RowSchema.table``."""
    gone: pa.Table
    """Keys in state Gone; columns of ``RowSchema.key``."""
    partials: pa.Table
    """Keys in state Partial; columns of ``RowSchema.table`` and ``_present``, the bitmap of the columns that the
    key's patches set."""

    @property
    def nbytes(self) -> int:
        return int(self.rows.nbytes + self.gone.nbytes + self.partials.nbytes)

    def keys(self, schema: RowSchema) -> pa.Table:
        """Primary keys of all three parts; columns of ``RowSchema.key``."""
        names = list(schema.primary_key)
        return pa.concat_tables([self.rows.select(names), self.gone.select(names), self.partials.select(names)])


def partial_schema(schema: RowSchema) -> pa.Schema:
    """Schema of ``Folded.partials``."""
    return schema.table.append(pa.field(PRESENT, pa.binary(), nullable=False))


def operation_schema(schema: RowSchema) -> pa.Schema:
    """Return the columns that ``fold`` reads: the table's, ``_op`` and ``_present``.  A WAL batch has more; the rest is
    ignored."""
    return pa.schema([*schema.table, schema.wal.field(OP), schema.wal.field(PRESENT)])


def fold(batches: Sequence[pa.RecordBatch], schema: RowSchema) -> Folded:
    """Fold operations given in offset order."""
    wanted = operation_schema(schema)
    selected = [b.select(wanted.names) for b in batches if b.num_rows]
    return _fold_table(pa.Table.from_batches(selected, wanted) if selected else wanted.empty_table(), schema)


def compose(parts: Sequence[Folded], schema: RowSchema) -> Folded:
    """Return the fold of all operations of ``parts``.  The operations of a part are later than those of the parts
    before it in the sequence."""
    return fold_onto(parts, operation_schema(schema).empty_table(), schema)


def fold_onto(parts: Sequence[Folded], operations: pa.Table, schema: RowSchema) -> Folded:
    """Return ``compose([*parts, fold(operations)])`` in one pass; ``operations`` has the columns of a WAL batch."""
    if operations.num_rows == 0 and len(parts) == 1:
        return parts[0]
    wanted = operation_schema(schema)
    tables = [table for part in parts for table in _operations(part, schema) if table.num_rows]
    if operations.num_rows:
        tables.append(operations.select(wanted.names))
    return _fold_table(pa.concat_tables(tables) if tables else wanted.empty_table(), schema)


def extend(first: Folded, more: Folded, schema: RowSchema) -> Folded:
    """Return ``compose([first, more])`` at the cost of folding the keys of ``more``, and one lookup of each key of
    ``first``."""
    keys = KeySet(more.keys(schema))
    if len(keys) == 0:
        return first
    touched, untouched = divide(first, keys)
    return side_by_side([untouched, compose([touched, more], schema)], schema)


def states_at(folded: Folded, places: Indices) -> Folded:
    """Return the states of the keys at these indexes of ``Folded.keys``, which must be distinct."""
    gone, partials = folded.rows.num_rows, folded.rows.num_rows + folded.gone.num_rows

    def part(table: pa.Table, first: int) -> pa.Table:
        here = places[(places >= first) & (places < first + table.num_rows)]
        return _rows_at(table, here - first) if len(here) else table.slice(0, 0)

    return Folded(part(folded.rows, 0), part(folded.gone, gone), part(folded.partials, partials))


def divide(folded: Folded, keys: KeySet) -> tuple[Folded, Folded]:
    """Return the states of these keys, and the states of all other keys."""
    (rows, rows_left), (gone, gone_left), (partials, partials_left) = (
        _split(part, keys) for part in (folded.rows, folded.gone, folded.partials)
    )
    return Folded(rows, gone, partials), Folded(rows_left, gone_left, partials_left)


def side_by_side(parts: Sequence[Folded], schema: RowSchema) -> Folded:
    """Return the states of all parts together.  The parts must have no key in common."""
    return Folded(
        pa.concat_tables([schema.table.empty_table(), *(part.rows for part in parts)]).combine_chunks(),
        pa.concat_tables([schema.key.empty_table(), *(part.gone for part in parts)]).combine_chunks(),
        pa.concat_tables([partial_schema(schema).empty_table(), *(part.partials for part in parts)]).combine_chunks(),
    )


def operations_of(folded: Folded, schema: RowSchema) -> pa.Table:
    """Return one operation for each key of a fold; folding them gives ``folded`` again.  Columns are those of
    ``operation_schema``."""
    return pa.concat_tables(_operations(folded, schema)).combine_chunks()


def _split(part: pa.Table, keys: KeySet) -> tuple[pa.Table, pa.Table]:
    """Return the rows with a key of the set, and the other rows."""
    touched = keys.contains([part[name] for name in keys.names])
    if not touched.any():
        return part.slice(0, 0), part
    return part.filter(pa.array(touched)), part.filter(pa.array(~touched))


def complete(partials: pa.Table, base: pa.Table, schema: RowSchema) -> pa.Table:
    """Complete Partial rows from the table's rows; return columns of ``RowSchema.table``, in the order of ``partials``.

    ``base`` has the table's columns and at most one row per key, in any order.  Keys without a row are completed from
    nulls.
    """
    partials, base = partials.combine_chunks(), base.combine_chunks()
    codes = key_codes(pa.concat_tables([partials.select(schema.primary_key), base.select(schema.primary_key)]))
    row_of = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
    row_of[codes[partials.num_rows :]] = np.arange(base.num_rows)
    places = row_of[codes[: partials.num_rows]]
    taken = _nullable_indices(places)
    present = present_bits(partials[PRESENT], schema)
    columns = []
    for i, field in enumerate(schema.table):
        if field.name in schema.primary_key or present[:, i].all():
            columns.append(partials[field.name])
            continue
        old = base[field.name].take(taken)
        if not present[:, i].any():  # perhaps of a type that only another program has
            columns.append(old)
            continue
        columns.append(_choose(present[:, i], old, partials[field.name]))
    return pa.Table.from_arrays([_single(c) for c in columns], schema=schema.table)


def columns_set(partials: pa.Table, schema: RowSchema) -> dict[str, bool]:
    """Return the columns outside the primary key that any of these patches sets, each with whether all patches set
    it."""
    if partials.num_rows == 0:
        return {}
    present = present_bits(partials.combine_chunks()[PRESENT], schema)
    return {
        name: bool(present[:, i].all())
        for i, name in enumerate(schema.table.names)
        if name not in schema.primary_key and present[:, i].any()
    }


def key_codes(keys: pa.Table) -> Indices:
    """Number the distinct rows of a table of key columns from 0.  Equal rows get equal numbers."""
    codes: Indices | None = None
    for column in keys.columns:
        more = _codes_of(column)
        # Both factors are below 2**31 (rows of one fold), so the product fits.
        codes = more if codes is None else _numbered(codes * (more.max(initial=0) + 1) + more)
    return np.zeros(0, np.int64) if codes is None else codes


def _codes_of(column: pa.ChunkedArray) -> Indices:
    if integer_like(column.type) and not column.null_count:
        return _numbered(integers(column))
    codes = _single(storage(column)).dictionary_encode().indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)


def _numbered(values: Indices) -> Indices:
    """Return codes from 0 up, equal for equal numbers.  Sorting is faster here than a large hash table."""
    order = np.argsort(values)
    ascending = values[order]
    codes = np.empty(len(values), np.int64)
    codes[order] = np.cumsum(np.diff(ascending, prepend=ascending[:1]) != 0)
    return codes


def _operations(part: Folded, schema: RowSchema) -> tuple[pa.Table, pa.Table, pa.Table]:
    """A fold as operations: Row as upsert, Gone as delete, Partial as patch."""
    wanted = operation_schema(schema)

    def build(table: pa.Table, op: Op) -> pa.Table:
        columns = [
            table[f.name] if f.name in table.column_names else pa.nulls(table.num_rows, f.type) for f in schema.table
        ]
        ops = pa.array(np.full(table.num_rows, op, np.uint8))
        present = table[PRESENT] if op is Op.PATCH else pa.nulls(table.num_rows, pa.binary())
        return pa.Table.from_arrays([*columns, ops, present], schema=wanted)

    return build(part.rows, Op.UPSERT), build(part.gone, Op.DELETE), build(part.partials, Op.PATCH)


def _fold_table(operations: pa.Table, schema: RowSchema) -> Folded:
    operations = _combined(operations)
    ops = _single(operations[OP]).to_numpy(zero_copy_only=False)
    if (ops == Op.UPSERT).all() and _differ(operations.select(schema.primary_key)):
        rows = operations.select(schema.table.names)
        if rows.get_total_buffer_size() > 2 * rows.nbytes:
            rows = _rows_at(rows, np.arange(rows.num_rows))  # a slice would keep all that it was cut from
        return Folded(rows.cast(schema.table), schema.key.empty_table(), partial_schema(schema).empty_table())
    codes = key_codes(operations.select(schema.primary_key))
    count = int(codes.max(initial=-1)) + 1
    last = np.empty(count, np.int64)
    last[codes] = np.arange(len(codes))  # repeated indices leave the last value behind
    patched = np.zeros(count, np.bool_)
    patched[codes[ops == Op.PATCH]] = True
    winners = last[~patched]
    winners.sort()
    whole = operations.select(schema.table.names)
    rows = [_rows_at(whole, winners[ops[winners] == Op.UPSERT])]
    gone = [_rows_at(whole.select(schema.primary_key), winners[ops[winners] == Op.DELETE])]
    partials = partial_schema(schema).empty_table()
    if patched.any():
        of_patched = np.flatnonzero(patched[codes])
        if any(column.num_chunks > 1 for column in operations.columns):  # what is patched may fit into one
            operations = _combined(_rows_at(operations, of_patched))
            ops, codes, of_patched = ops[of_patched], codes[of_patched], np.arange(len(of_patched))
        order = of_patched[np.argsort(codes[of_patched], kind="stable")]
        more_rows, more_gone, partials = _fold_patched(operations, ops, codes, order, schema)
        rows.append(more_rows)
        gone.append(more_gone)
    return Folded(pa.concat_tables(rows).cast(schema.table), pa.concat_tables(gone).cast(schema.key), partials)


def _combined(table: pa.Table) -> pa.Table:
    """Return a table in one chunk, but for columns of more than 2 GiB of text, binaries or lists: Arrow's offsets have
    32 bits."""
    return table.combine_chunks()


def _rows_at(table: pa.Table, places: Indices) -> pa.Table:
    """Return the rows at these places, which are all different, in any order.  ``take`` would join chunks first, and
    refuse more than 2 GiB."""
    if all(column.num_chunks <= 1 for column in table.columns):
        return table.take(pa.array(places))
    wanted = np.zeros(table.num_rows, np.bool_)
    wanted[places] = True
    return table.filter(pa.array(wanted))


def _differ(keys: pa.Table) -> bool:
    """Return whether all keys are known to differ.  This is cheap to find out only for keys of one integer-like
    column."""
    column = keys.column(0)
    if keys.num_columns > 1 or not integer_like(column.type) or column.null_count:
        return False
    ascending = np.sort(integers(column))
    return bool((ascending[1:] != ascending[:-1]).all())


def _fold_patched(
    operations: pa.Table, ops: npt.NDArray[np.uint8], codes: Indices, order: Indices, schema: RowSchema
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Fold the keys that a patch touches, and return their rows in state Row, keys in state Gone, rows in state
    Partial.

    ``order`` lists their operations, grouped by key, oldest first."""
    group = codes[order]
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    sizes = np.diff(np.r_[starts, len(order)])
    op = ops[order]
    place = np.arange(len(order))
    # The last upsert or delete of each key; operations before it do not count.
    reset = np.maximum.reduceat(np.where(op != Op.PATCH, place, -1), starts)
    live = place >= np.repeat(reset, sizes)
    bits = present_bits(operations[PRESENT].take(pa.array(order)), schema)
    newest = starts + sizes - 1
    key_indices = set(schema.primary_key)
    columns: list[pa.Array] = []
    carried = np.zeros((len(starts), len(schema.table)), np.bool_)
    for i, field in enumerate(schema.table):
        carriers = np.where(live & bits[:, i], place, -1)
        winner = newest if field.name in key_indices else np.maximum.reduceat(carriers, starts)
        carried[:, i] = winner >= 0
        source = np.where(winner >= 0, order[np.maximum(winner, 0)], -1)
        columns.append(_single(operations[field.name].take(_nullable_indices(source))))
    table = pa.Table.from_arrays(columns, schema=schema.table)
    is_partial = reset < 0
    is_gone = (reset == newest) & (op[newest] == Op.DELETE)
    partials = table.filter(pa.array(is_partial)).append_column(
        partial_schema(schema).field(PRESENT), bitmaps(carried[is_partial])
    )
    return (
        table.filter(pa.array(~is_partial & ~is_gone)),
        table.filter(pa.array(is_gone)).select(schema.primary_key),
        partials,
    )


def present_bits(present: pa.Array | pa.ChunkedArray, schema: RowSchema) -> npt.NDArray[np.bool_]:
    """Return ``_present`` as a matrix [operation, column]; null (not a patch) carries every column."""
    size = schema.present_bytes
    filled = _single(pc.fill_null(present, b"\xff" * size))
    if len(filled) == 0:
        return np.zeros((0, len(schema.table)), np.bool_)
    fixed = filled.cast(pa.binary(size))  # also checks that each bitmap has the right length
    data = np.frombuffer(fixed.buffers()[1], np.uint8)[fixed.offset * size :][: len(fixed) * size]
    bits = np.unpackbits(data.reshape(len(fixed), size), axis=1, bitorder="little")
    return bits[:, : len(schema.table)].astype(np.bool_)


def bitmaps(carried: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the bitmaps of a matrix [operation, column]: the inverse of ``present_bits``."""
    packed = np.ascontiguousarray(np.packbits(carried, axis=1, bitorder="little"))
    fixed = pa.binary(packed.shape[1])
    return pa.Array.from_buffers(fixed, len(packed), [None, pa.py_buffer(packed)]).cast(pa.binary())


def _nullable_indices(places: Indices) -> pa.Array:
    """Indices for ``take``: -1 gives null."""
    return pa.array(places, mask=places < 0)


def _single(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; also an empty one for a chunked array without chunks."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _choose(from_new: npt.NDArray[np.bool_], old: pa.ChunkedArray, new: pa.ChunkedArray) -> pa.Array:
    """Return for each row ``new`` if ``from_new``, else ``old``."""
    if not pa.types.is_nested(new.type) and new.type != pa.uuid():  # which ``pc.choose`` does not take
        return pc.choose(pa.array(from_new.astype(np.int8)), _single(old), new)
    both = pa.concat_arrays([_single(old), _single(new)])
    count = len(from_new)
    return both.take(pa.array(np.where(from_new, np.arange(count) + count, np.arange(count))))
