"""What records make of one key, and under which contract a record lies: written down by hand."""

from __future__ import annotations

import datetime
import math

import pyarrow as pa
import pytest

from lancewal_audit.verify.key_fold import KeyState, RowOperation, apply, plain_rows, same
from lancewal_audit.verify.records.eras import Eras
from lancewal_audit.verify.records.source import rows_of_columns
from lancewal_core.errors import ContractMismatch
from lancewal_core.names.ids import Position
from lancewal_core.rows.column_types import stored_array
from lancewal_core.rows.schema import Op
from lancewal_core.table.contract import Column, Contract

UPSERT, DELETE, PATCH = int(Op.UPSERT), int(Op.DELETE), int(Op.PATCH)
KEY = "k"


def fold(*records: tuple[int, object, object, str], empty: bool) -> KeyState:
    """Records (operation, a, b, columns that a patch carries) of one key, at offsets 0, 1, ..."""
    state: KeyState | None = None
    for offset, (op, a, b, carried) in enumerate(records):
        bits = sum(1 << "kab".index(name) for name in "k" + carried)
        present = bytes([bits]) if op == PATCH else None
        state = apply(state, RowOperation(0, offset, op, present, (KEY, a, b)), began_without_row=empty)
    assert state is not None
    return state


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([(UPSERT, 1, 2, "")], (KEY, 1, 2)),
        ([(UPSERT, 1, 2, ""), (UPSERT, 3, None, "")], (KEY, 3, None)),
        ([(UPSERT, 1, 2, ""), (PATCH, 5, None, "a")], (KEY, 5, 2)),
        ([(UPSERT, 1, 2, ""), (PATCH, None, None, "b")], (KEY, 1, None)),
        ([(UPSERT, 1, 2, ""), (DELETE, None, None, "")], None),
        ([(DELETE, None, None, ""), (PATCH, None, 7, "b")], (KEY, None, 7)),
        ([(UPSERT, 1, 2, ""), (DELETE, None, None, ""), (PATCH, 3, None, "a")], (KEY, 3, None)),
    ],
)
@pytest.mark.parametrize("empty", [True, False])
def test_a_whole_row(
    records: list[tuple[int, object, object, str]], expected: tuple[object, ...] | None, empty: bool
) -> None:
    state = fold(*records, empty=empty)
    assert state.known is None
    assert (tuple(state.values) if state.exists else None) == expected
    assert state.offset == len(records) - 1


def test_patches_alone() -> None:
    patches = [(PATCH, 1, None, "a"), (PATCH, 2, None, "a")]
    assert fold(*patches, empty=True).differing((KEY, 2, None)) == []
    assert fold(*patches, empty=True).differing((KEY, 2, 9)) == [2]
    unknown = fold(*patches, empty=False)
    assert unknown.exists
    assert unknown.differing((KEY, 2, 9)) == []
    assert unknown.differing((KEY, 1, 9)) == [1]


def test_equal_values() -> None:
    assert same(math.nan, math.nan)
    assert same([{"x": math.nan}], [{"x": math.nan}])
    assert not same(1, 2)
    assert not same(None, 0)
    assert not same("", None)


def test_dates_and_times_without_bounds() -> None:
    far = 2**62
    types = [
        pa.timestamp("us", tz="UTC"),
        pa.timestamp("ns"),
        pa.list_(pa.struct([("at", pa.timestamp("s")), ("day", pa.date32())])),
    ]
    columns = [
        pa.array([far], pa.int64()).cast(types[0]),
        pa.array([far + 1], pa.int64()).cast(types[1]),
        pa.array([[{"at": datetime.datetime(1970, 1, 1, 0, 0, 9), "day": datetime.date(1970, 1, 3)}]], types[2]),
    ]
    table = pa.table(dict(zip("abc", columns, strict=True)))
    (row,) = plain_rows(table, ["a", "b", "c"])
    assert row == (far, far + 1, [{"at": 9, "day": 2}])
    assert stored_array([row[0]], types[0]) == columns[0]


def contract(version: int, partitions: int, altered_at: tuple[int, ...] = (), topic_id: str = "id-1") -> Contract:
    return Contract(
        version=version, table_uuid="u", topic="t", topic_id=topic_id, partitions=partitions, primary_key=("k",),
        region_key=("k",), start=(0,) * partitions, columns=(Column(name="k", type="string", field_ids=(0,)),),
        altered_at=altered_at,
    )  # fmt: skip


def test_offsets_lie_under_the_contract_of_their_time() -> None:
    contracts = [contract(1, 2), contract(2, 3, (10, 20)), contract(3, 4, (15, 20, 7))]
    eras = Eras(contracts)
    assert eras.altered
    assert not eras.rebound

    def parts(partition: int) -> list[tuple[int, int, int, int]]:
        found = eras.parts(partition, Position(0), Position(100))
        assert all(contracts[era] is c for era, c, _, _ in eras.parts(partition, Position(0), Position(100)))
        return [(era, c.partitions, low, high) for era, c, low, high in found]

    assert parts(0) == [(0, 2, 0, 10), (1, 3, 10, 15), (2, 4, 15, 100)]
    assert parts(1) == [(0, 2, 0, 20), (2, 4, 20, 100)]
    assert parts(2) == [(1, 3, 0, 7), (2, 4, 7, 100)]
    assert parts(3) == [(2, 4, 0, 100)]
    assert [eras.era_of(0, offset) for offset in (0, 9, 10, 14, 15, 99)] == [0, 0, 1, 1, 2, 2]
    assert [eras.era_of(3, 0), eras.era_of(2, 6), eras.era_of(1, 20)] == [2, 1, 2]
    anew = Eras([contract(1, 2), contract(2, 1, (), "id-2")])
    assert anew.rebound
    assert not anew.altered
    assert [era for era, *_ in anew.parts(0, Position(0), Position(9))] == [0]


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ([("id", pa.int64()), ("a", pa.int32())], "column 'a' is int64, the table's contract has int32"),
        ([("id", pa.int64()), ("b", pa.int64())], "column 'b' is absent"),
        (
            [("a", pa.int64()), ("id", pa.int64())],
            r"its columns are \['id', 'a'\], those of the table's contract \['a', 'id'\]",
        ),
    ],
)
def test_rows_of_other_columns_are_refused(columns: list[tuple[str, pa.DataType]], named: str) -> None:
    rows = pa.record_batch({"id": pa.array([1]), "a": pa.array([2])})
    assert rows_of_columns(rows, rows.schema, "x") is rows
    with pytest.raises(ContractMismatch, match=f"^x has rows of another contract: {named}"):
        rows_of_columns(rows, pa.schema(columns), "x")
