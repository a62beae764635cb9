"""Rows of one contract as rows of a later one, compared with plain Python that carries them by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import ContractMismatch
from lancewal_core.rows.carry import widens
from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.fold import Folded, partial_schema
from lancewal_core.rows.projection import project, project_rows, rows_as
from lancewal_core.rows.row_range import RowRange
from lancewal_core.rows.schema import OP, PRESENT, Op, RowSchema

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
LIMITS = {name: np.iinfo(name) for name in INTEGERS}
OTHERS = (
    "float32",
    "float64",
    "bool",
    "string",
    "binary",
    "date32",
    "decimal128(10, 2)",
    "timestamp[s]",
    "list<int32>",
)


@pytest.mark.parametrize("old", INTEGERS)
@pytest.mark.parametrize("new", INTEGERS)
def test_integers_widen_where_every_value_is_in_the_range(old: str, new: str) -> None:
    holds = LIMITS[new].min <= LIMITS[old].min and LIMITS[old].max <= LIMITS[new].max
    assert widens(parse_type(old), parse_type(new)) == holds


@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize("other", OTHERS)
def test_integers_widen_to_no_other_type(integer: str, other: str) -> None:
    assert not widens(parse_type(integer), parse_type(other))
    assert not widens(parse_type(other), parse_type(integer))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("float32", "float64", True),
        ("float64", "float32", False),
        ("decimal128(10, 2)", "decimal128(12, 4)", True),
        ("decimal128(10, 2)", "decimal128(12, 2)", True),
        ("decimal128(10, 2)", "decimal128(11, 4)", False),
        ("decimal128(10, 2)", "decimal128(38, 1)", False),
        ("decimal128(38, 0)", "decimal128(38, 1)", False),
        ("timestamp[s]", "timestamp[us]", True),
        ("timestamp[ms]", "timestamp[us]", True),
        ("timestamp[ms]", "timestamp[s]", False),
        ("timestamp[us]", "timestamp[ns]", False),
        ("timestamp[ns]", "timestamp[us]", False),
        ("timestamp[ns]", "timestamp[ns]", True),
        ("timestamp[s]", "timestamp[us, UTC]", False),
        ("timestamp[s, UTC]", "timestamp[us, UTC]", True),
        ("fixed_size_list<float32>[3]", "fixed_size_list<float64>[3]", True),
        ("fixed_size_list<float32>[3]", "fixed_size_list<float64>[4]", False),
        ("fixed_size_list<uint8>[3]", "fixed_size_list<float32>[3]", False),
        ("string", "binary", False),
        ("date32", "timestamp[us]", False),
        ("bool", "int8", False),
        ("time32[s]", "time32[ms]", True),
        ("time32[s]", "time64[ns]", True),
        ("time64[us]", "time64[ns]", True),
        ("time64[us]", "time32[ms]", False),
        ("time32[ms]", "timestamp[ms]", False),
        ("timestamp[s]", "time32[s]", False),
        ("duration[s]", "duration[ms]", False),
        ("string", "large_string", True),
        ("large_string", "string", False),
        ("binary", "large_binary", True),
        ("large_binary", "binary", False),
        ("fixed_size_binary[16]", "binary", True),
        ("fixed_size_binary[16]", "large_binary", True),
        ("fixed_size_binary[16]", "fixed_size_binary[17]", False),
        ("binary", "fixed_size_binary[16]", False),
        ("uuid", "fixed_size_binary[16]", False),
        ("uuid", "string", False),
        ("fixed_size_binary[16]", "uuid", False),
    ],
)
def test_types_that_widen(old: str, new: str, expected: bool) -> None:
    assert widens(parse_type(old), parse_type(new)) == expected


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("uint32", "int64", [0, 2**32 - 1, None]),
        ("int8", "int64", [-128, 127, None]),
        ("float32", "float64", [1.5, -0.0, float("inf"), None, 3.4028234663852886e38]),
        ("decimal128(10, 2)", "decimal128(38, 20)", [Decimal("99999999.99"), Decimal("-0.01"), None]),
        ("timestamp[s]", "timestamp[us]", [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), None]),
        ("fixed_size_list<float32>[2]", "fixed_size_list<float64>[2]", [[1.5, 2.5], None, [0.0, -1.0]]),
        ("list<int32>", "list<int64>", [[], [1, None], None, [2**31 - 1]]),
        ("time32[s]", "time64[ns]", [time(0), time(23, 59, 59), None]),
        ("list<time32[ms]>", "list<time64[us]>", [[time(23, 59, 59, 999_000), None], None, []]),
        ("string", "large_string", ["", "a\0", None]),
        ("list<string>", "list<large_string>", [["", None], None, []]),
        ("binary", "large_binary", [b"", b"\xff\0", None]),
        ("fixed_size_binary[2]", "binary", [b"\0\0", None, b"ab"]),
        ("fixed_size_binary[2]", "large_binary", [b"\0\0", None, b"ab"]),
        ("list<list<float32>>", "list<list<float64>>", [[[1.5], None, []], None]),
    ],
)
def test_limits_of_each_type_keep_their_values(old: str, new: str, values: list[Any]) -> None:
    ids = [tuple(range(10, 10 + old.count("list<") - old.count("fixed_size_list") + 1))]
    before, after = (
        RowSchema(pa.schema([("id", pa.int64()), ("a", parse_type(text))]), ("id",), (), ((0,), ids[0]))
        for text in (old, new)
    )
    table = pa.table({"id": range(len(values) + 2), "a": pa.array([values[0], *values, values[0]], parse_type(old))})
    found = rows_as(table.slice(1, len(values)), before, after, lambda: "x")
    assert found.schema.field("a").type == parse_type(new)
    assert found["a"].to_pylist() == values
    found.validate(full=True)


def test_a_time_beyond_the_finer_unit_is_an_error_and_no_other_time() -> None:
    before, after = (
        RowSchema(pa.schema([("id", pa.int64()), ("a", pa.timestamp(unit))]), ("id",), (), ((0,), (1,)))
        for unit in ("s", "us")
    )
    table = pa.table({"id": [1], "a": pa.array([2**62], pa.int64()).cast(pa.timestamp("s"))})
    with pytest.raises(pa.ArrowInvalid):
        rows_as(table, before, after, lambda: "x")


# ---- random histories of columns


@dataclass
class Node:
    """A field in the model: its values are Python's, and a struct's are dicts by the ids of its members."""

    id: int
    name: str
    plain: str = ""
    """Type of a plain field; empty for a struct or list."""
    members: list[Node] = field(default_factory=list)
    item: Node | None = None

    def ids(self) -> tuple[int, ...]:
        inner = self.members if self.item is None else [self.item]
        return (self.id, *(i for node in inner for i in node.ids()))

    def type(self) -> pa.DataType:
        if self.plain:
            return parse_type(self.plain)
        if self.item is not None:
            return pa.list_(self.item.type())
        return pa.struct([(node.name, node.type()) for node in self.members])

    def shown(self, value: Any) -> Any:
        """The value as Arrow gives it under this version."""
        if value is None:
            return None
        if self.plain:
            return value
        if self.item is not None:
            return [self.item.shown(one) for one in value]
        return {node.name: node.shown(value.get(node.id)) for node in self.members}

    def copy(self) -> Node:
        item = None if self.item is None else self.item.copy()
        return Node(self.id, self.name, self.plain, [node.copy() for node in self.members], item)


STEPS = {"int8": "int16", "int16": "int64", "uint8": "int16", "uint32": "int64", "float32": "float64",
         "decimal128(5, 1)": "decimal128(9, 3)", "timestamp[s]": "timestamp[ms]",
         "timestamp[ms]": "timestamp[us]"}  # fmt: skip


class History:
    """Columns that change, by a model that knows nothing of the product."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.next_id = 1
        self.columns = [self.node(0, 2) for _ in range(self.draw.randint(1, 10))]
        self.names = 0

    def node(self, depth: int, deepest: int) -> Node:
        id_, self.next_id = self.next_id, self.next_id + self.draw.randint(1, 3)
        kind = self.draw.choice(("plain", "plain", "struct", "list")) if depth < deepest else "plain"
        node = Node(id_, f"n{id_}")
        if kind == "plain":
            node.plain = self.draw.choice((*STEPS, "string", "bool"))
        elif kind == "list":
            node.item = self.node(depth + 1, deepest)
            node.item.name = "item"
        else:
            node.members = [self.node(depth + 1, deepest) for _ in range(self.draw.randint(1, 3))]
        return node

    def all_lists(self) -> list[list[Node]]:
        """Lists of fields that may grow and shrink: the columns, and the members of each struct."""
        found, left = [self.columns], list(self.columns)
        while left:
            node = left.pop()
            if node.members:
                found.append(node.members)
            left += node.members if node.item is None else [node.item]
        return found

    def change(self) -> None:
        fields = self.draw.choice(self.all_lists())
        node = self.draw.choice(fields)
        match self.draw.choice(("add", "drop", "rename", "widen", "again")):
            case "add":
                fields.insert(self.draw.randint(0, len(fields)), self.node(1, 2))
            case "drop" if len(fields) > 1:
                fields.remove(node)
            case "again":  # dropped, and added under its name
                fields[fields.index(node)] = other = self.node(1, 2)
                other.name = node.name
            case "rename":
                self.names += 1
                node.name = f"r{self.names}"
            case "widen" if node.plain in STEPS:
                node.plain = STEPS[node.plain]

    def schema(self) -> RowSchema:
        fields = [pa.field("id", pa.int64(), nullable=False), *(pa.field(c.name, c.type()) for c in self.columns)]
        return RowSchema(pa.schema(fields), ("id",), (), ((0,), *(c.ids() for c in self.columns)))

    def value(self, node: Node) -> Any:
        if self.draw.random() < 0.2:
            return None
        if node.item is not None:
            return [self.value(node.item) for _ in range(self.draw.randint(0, 3))]
        if node.members:
            return {member.id: self.value(member) for member in node.members}
        match node.plain.split("(")[0].split("[")[0]:
            case "bool":
                return self.draw.random() < 0.5
            case "string":
                return self.draw.choice(("", "ä", "x" * 9))
            case "float32" | "float64":
                return self.draw.choice((0.5, -3.25))
            case "decimal128":
                return Decimal(self.draw.randint(-9999, 9999)).scaleb(-1)
            case "timestamp":
                return datetime(1970, 1, 1) + timedelta(seconds=self.draw.randint(-(10**9), 10**9))
        return self.draw.randint(0, 127)


@pytest.mark.parametrize("seed", range(60))
def test_random_changes_of_columns(seed: int) -> None:
    """Batches, tables in pieces, and folds equal the model, whatever lies between the two versions."""
    history = History(seed)
    written = history.schema()
    then = [column.copy() for column in history.columns]
    rows = [{column.id: history.value(column) for column in then} for _ in range(12)]
    sets = [{column.id for column in then if history.draw.random() < 0.5} for _ in rows]
    for _ in range(history.draw.randint(1, 8)):
        history.change()
    wanted = history.schema()
    columns = {"id": list(range(12))} | {c.name: [c.shown(row[c.id]) for row in rows] for c in then}
    ops = [history.draw.choice(list(Op)) for _ in rows]
    present = [_bitmap([True, *(c.id in s for c in then)]) if op is Op.PATCH else None
               for op, s in zip(ops, sets, strict=True)]  # fmt: skip
    arrays = [pa.array(columns[f.name], f.type) for f in written.table]
    batch = pa.RecordBatch.from_arrays(
        [*arrays, pa.array(ops, pa.uint8()), pa.array(present, pa.binary())],
        schema=pa.schema([*written.table, written.wal.field(OP), written.wal.field(PRESENT)]),
    )

    def expected(among: range) -> list[dict[str, Any]]:
        return [{"id": i} | {c.name: c.shown(rows[i].get(c.id)) for c in history.columns} for i in among]

    def bitmaps(among: range) -> list[bytes | None]:
        return [_bitmap([True, *(c.id in sets[i] for c in history.columns)]) if ops[i] is Op.PATCH else None
                for i in among]  # fmt: skip

    part = range(3, 10)
    pieces = pa.Table.from_batches([batch.slice(0, 3), batch.slice(3, 4), batch.slice(7, 3)]).slice(3)
    for given in (batch.slice(3, 7), pieces, RowRange(batch, 3, 7)):
        found = rows_as(given, written, wanted, lambda: "x")
        assert type(found) is type(given)
        found = found.rows if isinstance(found, RowRange) else found
        found.validate(full=True)
        assert found.schema.names == [*wanted.table.names, OP, PRESENT]
        assert found.select(wanted.table.names).cast(wanted.table).to_pylist() == expected(part)
        assert found.column(PRESENT).to_pylist() == bitmaps(part)
        assert found.column(OP).to_pylist() == ops[3:10]
        some = project(wanted, {wanted.columns.names[-1]})
        assert project_rows(found, wanted, some).select(some.columns.names).to_pylist() == [
            {name: row[name] for name in some.columns.names} for row in expected(part)
        ]
    table = pa.Table.from_batches([batch])
    patches = [i for i in range(12) if ops[i] is Op.PATCH]
    partials = table.take(pa.array(patches, pa.int64())).drop_columns([OP]).cast(partial_schema(written))
    folded = rows_as(
        Folded(table.select(written.table.names).slice(2, 5), written.key.empty_table(), partials),
        written, wanted, lambda: "x",
    )  # fmt: skip
    assert folded.rows.schema == wanted.table
    assert folded.rows.to_pylist() == expected(range(2, 7))
    assert folded.partials.schema == partial_schema(wanted)
    assert folded.partials[PRESENT].to_pylist() == [bitmaps(range(i, i + 1))[0] for i in patches]
    assert folded.partials.drop_columns([PRESENT]).to_pylist() == [
        row for i in patches for row in expected(range(i, i + 1))
    ]
    assert folded.gone.schema == wanted.key


def _bitmap(bits: list[bool]) -> bytes:
    return sum(1 << i for i, bit in enumerate(bits) if bit).to_bytes((len(bits) + 7) // 8, "little")


def test_a_column_added_again_under_its_name_has_none_of_the_old_values() -> None:
    written, wanted = (
        RowSchema(pa.schema([("id", pa.int64()), ("a", pa.string())]), ("id",), (), ((0,), (own,))) for own in (1, 2)
    )
    assert written.signature != wanted.signature
    found = rows_as(pa.table({"id": [1], "a": ["old"]}), written, wanted, lambda: "x")
    assert found.to_pylist() == [{"id": 1, "a": None}]


@pytest.mark.parametrize(
    ("columns", "ids"),
    [
        ([("id", "int64"), ("a", "int16")], ((0,), (1,))),  # narrower
        ([("id", "int64"), ("a", "string")], ((0,), (1,))),
        ([("id", "int64"), ("a", "list<int32>")], ((0,), (1, 2))),
        ([("id", "int64"), ("a", "int32")], ()),  # ids are not known
        ([("id", "int32"), ("a", "int32")], ((0,), (1,))),  # keys
        ([("id", "int64"), ("a", "int32")], ((5,), (1,))),
        ([("id", "int64"), ("a", "int32")], ((0,),)),  # not one for each column and field
        ([("id", "int64"), ("a", "int32")], ((0,), (1, 2))),
        ([("id", "int64"), ("a", "list<int32>")], ((0,), (1,))),
    ],
)
def test_columns_to_which_no_way_leads_are_refused(columns: list[tuple[str, str]], ids: Any) -> None:
    written = RowSchema(pa.schema([("id", pa.int64()), ("a", pa.int32())]), ("id",), (), ((0,), (1,)))
    wanted = RowSchema(pa.schema([(name, parse_type(text)) for name, text in columns]), ("id",), (), ids)
    with pytest.raises(ContractMismatch, match=r"^the entry has rows of another contract"):
        rows_as(pa.table({"id": [1], "a": [2]}), written, wanted, lambda: "the entry")
