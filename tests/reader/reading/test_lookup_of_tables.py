"""Lookups and counts on tables with stable row ids and without, by keys of several types, after what merges, users and
compaction do to a table; beside a dict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.rows.schema import Op
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_reader.table import Table, open_table
from tests.support.flusher_tables import COMBINE, Key, KeyedTable, Operation

KEYS: dict[str, tuple[pa.Schema, Callable[[int], Key]]] = {
    "int32": (pa.schema([pa.field("k", pa.int32(), nullable=False)]), lambda n: (n - 50,)),
    "string": (pa.schema([pa.field("k", pa.string(), nullable=False)]), lambda n: (f"ä{n}" if n else "",)),
    "binary": (pa.schema([pa.field("k", pa.binary(), nullable=False)]), lambda n: (b"\x00" * (n % 3) + b"%d" % n,)),
    # "1", "23" and "12", "3" are two keys.
    "composite": (
        pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("l", pa.string(), nullable=False)]),
        lambda n: (f"{n}"[:1], f"{n}"[1:]),
    ),
}
ROWS = 200


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def stable(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=KEYS)
def made(request: pytest.FixtureRequest, tmp_path: Path, stable: bool) -> Iterator[KeyedTable]:
    key, _ = KEYS[request.param]
    columns = pa.schema([*key, ("a", pa.int64()), ("s", pa.string())])
    table = KeyedTable(tmp_path, 1, columns=columns, primary_key=tuple(key.names), stable_row_ids=stable)
    yield table
    table.close()


def write(table: KeyedTable, op: Op, numbers: range, a: int) -> None:
    """The next generation, which is flushed and not merged."""
    of = key_of(table)
    carried = {} if op is Op.DELETE else {"a": a} if op is Op.PATCH else {"a": a, "s": f"s{a}"}
    table.generation(0, [Operation(op, of(n), carried) for n in numbers])


def key_of(table: KeyedTable) -> Callable[[int], Key]:
    names = list(table.contract.primary_key)
    type_ = table.contract.rows.table.field(names[0]).type
    return next(of for key, of in KEYS.values() if key.names == names and key.field(0).type == type_)


def check(table: KeyedTable, reader: Table) -> None:
    """All keys that ever were, and some that never were, backwards."""
    keys = [key_of(table)(n) for n in reversed(range(ROWS + 20))]
    assert reader.get(keys).to_arrow().to_pylist() == [table.model[key] for key in keys if key in table.model]
    assert reader.count_rows() == len(table.model)


def test_whatever_was_done_to_the_table(made: KeyedTable) -> None:
    kept = open_table(made.uri)
    write(made, Op.UPSERT, range(ROWS), 1)
    check(made, kept)
    made.round()
    check(made, kept)
    # Deleted and replaced rows of the table, then the same ones once more, unmerged.
    write(made, Op.UPSERT, range(20, 60), 2)
    write(made, Op.DELETE, range(50, 90), 2)
    made.round(COMBINE)
    check(made, kept)
    write(made, Op.PATCH, range(10, 30), 3)
    write(made, Op.PATCH, range(80, 95), 3)  # some of them have no row
    write(made, Op.DELETE, range(90, 110), 3)
    write(made, Op.UPSERT, range(100, 105), 3)
    for reader in (kept, open_table(made.uri)):
        check(made, reader)
    # The key index does not know yet where the rows are now.
    lance.dataset(made.uri).optimize.compact_files(target_rows_per_fragment=10_000)
    for reader in (kept, open_table(made.uri)):
        check(made, reader)
    made.round()
    check(made, kept)


def test_rows_that_the_key_index_does_not_cover(made: KeyedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    write(made, Op.UPSERT, range(ROWS), 1)
    made.round()
    new = {key_of(made)(n): n for n in range(ROWS, ROWS + 10)}
    names = made.contract.primary_key
    rows = [{**dict(zip(names, key, strict=True)), "a": n, "s": "user"} for key, n in new.items()]
    lance.write_dataset(pa.Table.from_pylist(rows, made.contract.rows.table), made.uri, mode="append")
    made.model.update(zip(new, rows, strict=True))
    write(made, Op.UPSERT, range(ROWS - 5, ROWS + 5), 2)
    scanned: list[object] = []
    scan = LancePinnedTable.scan

    def seen(*args: object, **named: object) -> object:
        scanned.append(named)
        return scan(*args, **named)  # type: ignore[arg-type] # as it was called

    monkeypatch.setattr(LancePinnedTable, "scan", seen)
    check(made, open_table(made.uri))
    assert scanned
