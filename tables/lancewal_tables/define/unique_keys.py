"""Check primary keys: no nulls and no duplicates in a table, no duplicates among rows to be loaded.

The checks are exact, in bounded memory.  The keys are spread over as many passes as ``keys_at_once`` requires.  Each pass
scans the key columns and groups its share of the keys.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import DuplicateKeys, InvalidSchema, counted
from lancewal_core.rows.column_types import shown_rows, storage_rows
from lancewal_core.rows.murmur2 import partitions_of
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.protocol import PinnedTable

KEYS_AT_ONCE = 8_000_000
"""Number of keys that are held in memory at a time.  Each takes about 30 bytes in addition to its values: some hundred
MB in all."""
_SHOWN = 10


def check_unique_keys(table: PinnedTable, rows: RowSchema, keys_at_once: int = KEYS_AT_ONCE) -> None:
    """Check the primary keys of all rows of a table version.

    Raises ``InvalidSchema`` if a key column has a null.  ``DuplicateKeys`` names up to ten keys, with their counts.
    """
    total = sum(fragment.live_rows for fragment in table.fragments())
    passes = max(1, -(-total // keys_at_once))

    schema = pa.schema([table.schema.field(name) for name in rows.primary_key])
    shares = (_share(table.scan(rows.primary_key), schema, number, passes) for number in range(passes))
    first = next(shares)
    _refuse_nulls(table, rows, first if passes == 1 else None)
    _refuse_twice(
        itertools.chain([first], shares),
        rows,
        "in the table",
        "Remove the rows that are too many, or name other columns in table.primary_key",
    )


def check_unique_rows(
    scan: Callable[[], Iterator[pa.RecordBatch]],
    total: int,
    rows: RowSchema,
    keys_at_once: int = KEYS_AT_ONCE,
) -> None:
    """Raise ``DuplicateKeys`` if a key comes twice among ``total`` rows of files.  The key columns must not have nulls.

    Each call of ``scan`` yields batches of the key columns from the start.
    """
    passes = max(1, -(-total // keys_at_once))
    _refuse_twice(
        (_share(scan(), rows.key, number, passes) for number in range(passes)),
        rows,
        "in the files",
        "Nothing was loaded. Remove the rows that are too many, or load with --duplicates last",
    )


def _refuse_twice(shares: Iterable[pa.Table], rows: RowSchema, where: str, advice: str) -> None:
    """Raise ``DuplicateKeys`` if a share has a key twice.  Equal keys must be in the same share."""
    found: list[tuple[str, object]] = []
    duplicates = 0
    for keys in shares:
        counts = storage_rows(keys).group_by(list(rows.primary_key)).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts["count_all"], 1))
        twice = twice.cast(pa.schema([*rows.key, twice.schema.field("count_all")]))
        duplicates += twice.num_rows
        for row in shown_rows(twice.slice(0, _SHOWN - len(found))):
            key = ", ".join(f"{name}={row[name]!r}" for name in rows.primary_key)
            found.append((key, row["count_all"]))
    if duplicates:
        listed = "; ".join(f"({key}) {count} times" for key, count in found)
        more = f"; and {duplicates - len(found)} more" if duplicates > len(found) else ""
        raise DuplicateKeys(
            f"{counted(duplicates, 'primary key')} found more than once {where}: {listed}{more}. {advice}",
            duplicates=duplicates,
        )


def _share(scan: Iterator[pa.RecordBatch], schema: pa.Schema, number: int, passes: int) -> pa.Table:
    """Return the keys of pass ``number`` of ``passes``."""
    batches = []
    for batch in scan:
        if passes > 1:
            # Any function of the key will do: equal keys come in the same pass.
            texts = [_bytes(batch.column(name)) for name in schema.names]
            joined = pc.binary_join_element_wise(*texts, b"\x00", null_handling="replace")
            batch = batch.filter(pa.array(partitions_of(joined, passes) == number))
        batches.append(batch)
    return pa.Table.from_batches(batches, batches[0].schema) if batches else schema.empty_table()


def _bytes(column: pa.Array) -> pa.Array:
    if not (pa.types.is_temporal(column.type) or pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
        return column.cast(pa.binary())
    return column.cast(pa.string()).cast(pa.binary())


def _refuse_nulls(table: PinnedTable, rows: RowSchema, keys: pa.Table | None) -> None:
    for name in rows.primary_key:
        columns = [keys[name]] if keys is not None else (batch.column(0) for batch in table.scan([name]))
        nulls = sum(column.null_count for column in columns)
        if nulls:
            raise InvalidSchema(
                f"primary key column {name!r} is null in {counted(nulls, 'row')}: remove them, or name another primary key"
            )
