"""Merges into real Lance tables over every type of key and kind of value: a plain reader sees what a dict and DuckDB say.

Histories are random, by seed.  Keys are those that are easily taken for each other; values those that a comparison or a
detour easily changes: NaN, -0.0, nulls at each depth.
"""

from __future__ import annotations

import itertools
import json
import random
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest

from lancewal_core.rows.schema import Op
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.merge.finish import finish_newest
from lancewal_flusher.merge.merge import Merged, merge_next
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_flusher.tasks import in_place
from lancewal_flusher.upkeep.compaction import FileSizes, compact_next
from lancewal_flusher.upkeep.compaction_plan import CompactionLimits
from lancewal_flusher.upkeep.key_runs import UpkeepState, keep_up
from lancewal_reader.forms.key_text import keys_of_texts
from lancewal_reader.forms.plain_rows import plain_rows
from lancewal_reader.table import open_table
from tests.support.flusher_tables import Key, KeyedTable, Operation, Row, exact

TEXTS = [
    "",
    "a",
    "A",
    "b",
    "ab",
    "aa",
    "a ",
    " a",
    "\0",
    "a\0",
    "a\0b",
    "é",
    "e\u0301",
    "ß",
    "ss",
    "İ",
    "1:a",
    "a;",
    "😀",
]
BYTES = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0b", b"\x80", b"\xff", b"\xff\xfe", b"\xc3\xa9", b"1:", b";", b"1;a"]
INT64 = [0, 1, -1, 2**31, 2**32, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), -(2**63) + 1]
UINT64 = [0, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
DATES = [date(1970, 1, 1) + timedelta(days) for days in (-719_162, -365, -1, 0, 1, 365, 2_932_896)]
UUIDS = [UUID(int=number) for number in (0, 1, 2**64, 2**127, 2**128 - 1, *(7**i for i in range(20, 45)))]
CLOCKS = [time(0), time(0, 0, 0, 1), time(0, 0, 1), time(12), time(23, 59, 59, 999_999)]
CLOCKS += [time(minute, 7, 30) for minute in range(20)]
TIMES = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us) for us in (-1_000_000, -1, 0, 1, 999, 10**15)]

KEYS: dict[str, tuple[list[pa.DataType], list[Key]]] = {
    "int8": ([pa.int8()], [(i,) for i in range(-128, 128, 5)]),
    "int64": ([pa.int64()], [(i,) for i in [*INT64, *range(10, 40)]]),
    "uint64": ([pa.uint64()], [(i,) for i in [*UINT64, *range(10, 40)]]),
    "string": ([pa.string()], [(text,) for text in [*TEXTS, *map(str, range(30))]]),
    "binary": ([pa.binary()], [(data,) for data in [*BYTES, *(bytes([i, 255 - i]) for i in range(30))]]),
    "bool": ([pa.bool_()], [(False,), (True,)]),
    "fixed_size_binary": (
        [pa.binary(2)],
        [(bytes([i, 255 - j]),) for i in (0, 58, 97, 128, 255) for j in (0, 1, 158, 255)],
    ),
    "uuid": ([pa.uuid()], [(one,) for one in UUIDS]),
    "time64": ([pa.time64("us")], [(clock,) for clock in CLOCKS]),
    "large_string": ([pa.large_string()], [(text,) for text in [*TEXTS, *map(str, range(30))]]),
    "large_binary": ([pa.large_binary()], [(data,) for data in [*BYTES, *(bytes([i, 255 - i]) for i in range(30))]]),
    "date32": ([pa.date32()], [(day,) for day in [*DATES, *(date(2024, 2, 1) + timedelta(i) for i in range(30))]]),
    "string, int64": ([pa.string(), pa.int64()], list(itertools.product(TEXTS[::2], INT64[::3]))),
    "uuid, time32": (
        [pa.uuid(), pa.time32("s")],
        list(itertools.product(UUIDS[:6], [time(0), time(0, 0, 1), time(23)])),
    ),
    "large_binary, uuid, fixed_size_binary": (
        [pa.large_binary(), pa.uuid(), pa.binary(1)],
        list(itertools.product(BYTES[:5], UUIDS[:3], [b"\0", b";"])),
    ),
    "string, string": ([pa.string(), pa.string()], list(itertools.product(TEXTS[:7], TEXTS[:7]))),
    "binary, date32": ([pa.binary(), pa.date32()], list(itertools.product(BYTES[:8], DATES))),
    "uint64, timestamp, bool": (
        [pa.uint64(), pa.timestamp("us", tz="UTC"), pa.bool_()],
        list(itertools.product(UINT64[::3], TIMES, [False, True])),
    ),
}
"""Types of the key's columns, and keys."""

LATER = ("uuid", "fixed", "time", "large")
"""Words in the names of keys that have types of later releases, or times."""
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "number": (pa.float64(), [None, 0.0, -0.0, 1.5, float("nan"), struct.unpack(">d", b"\xff\xf8\0\0\0\0\0\x07")[0]]),
    "text": (pa.string(), [None, "", *TEXTS]),
    "pair": (
        pa.struct([("x", pa.int32()), ("y", pa.float32())]),
        [None, {"x": None, "y": None}, {"x": 1, "y": -0.0}, {"x": None, "y": float("nan")}],
    ),
    "fixed": (pa.binary(3), [None, b"\0\0\0", b"\xff\0a"]),
    "uuid": (pa.uuid(), [None, UUID(int=0), UUID(int=2**128 - 1)]),
    "clock": (pa.time32("ms"), [None, time(0), time(23, 59, 59, 999_000)]),
    "fine clock": (pa.time64("us"), [None, time(0), time(23, 59, 59, 999_999)]),
    "took": (pa.duration("ms"), [None, timedelta(0), timedelta(-1), timedelta(10**8)]),
    "large text": (pa.large_string(), [None, "", *TEXTS]),
    "large data": (pa.large_binary(), [None, *BYTES]),
    "later": (
        pa.list_(
            pa.struct([("f", pa.binary(2)), ("t", pa.time64("us")), ("s", pa.large_string()), ("d", pa.duration("s"))])
        ),
        [
            None,
            [],
            [None, {"f": None, "t": None, "s": None, "d": None}],
            [{"f": b"\0\1", "t": time(1), "s": "", "d": timedelta(seconds=-1)}],
        ],
    ),
    "map": (
        pa.map_(pa.string(), pa.float64()),
        [None, [], [("", None)], [("b", -0.0), ("a", float("nan"))], [("a", 0.0)]],
    ),
    "maps": (
        pa.struct([("in", pa.list_(pa.map_(pa.string(), pa.struct([("f", pa.float32())]))))]),
        [
            None,
            {"in": None},
            {"in": []},
            {"in": [None, []]},
            {"in": [[("k", None), ("l", {"f": None})], [("m", {"f": -0.0})]]},
        ],
    ),
    "list": (pa.list_(pa.float64()), [None, [], [None], [-0.0, 0.0, float("nan")], [1.0, None]]),
    "vector": (pa.list_(pa.float32(), 2), [None, [1.0, 2.0], [-0.0, 0.0], [float("nan"), float("inf")]]),
    "bits": (pa.list_(pa.uint8(), 2), [None, [0, 255], [128, 1]]),
    "deep": (
        pa.struct([("in", pa.struct([("x", pa.int32()), ("yes", pa.bool_())])), ("all", pa.list_(pa.bool_()))]),
        [
            None,
            {"in": None, "all": None},
            {"in": {"x": None, "yes": True}, "all": [None]},
            {"in": {"x": 1, "yes": None}, "all": []},
        ],
    ),
    "many": (
        pa.list_(pa.struct([("in", pa.struct([("f", pa.float64())])), ("no", pa.bool_())])),
        [
            None,
            [],
            [None],
            [{"in": None, "no": None}, {"in": {"f": -0.0}, "no": False}],
            [{"in": {"f": None}, "no": True}],
        ],
    ),
}
"""Type of each other column, and values."""

LIMITS = [MergeLimits(adopt_rows=rows, in_place_rows=1) for rows in (1, 1_000)]
"""Adopt or combine."""
COMPACTION = CompactionLimits(fragments_min=2, growth=1.0).to_the_end()

key_types = pytest.mark.parametrize("key_type", KEYS)
with_and_without_index = pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "scanned"])
both_kinds_of_ids = pytest.mark.parametrize("stable_row_ids", [False, True], ids=["addresses", "stable ids"])


def made(folder: Path, key_type: str, *, stable_row_ids: bool, keyed_by_bytes: bool = False) -> KeyedTable:
    """Key columns stand behind a value, and in the other order than the key has them."""
    number, *others = [pa.field(name, type_) for name, (type_, _) in VALUES.items()]
    types, _ = KEYS[key_type]
    keys = [pa.field(f"key{i}", type_, nullable=False) for i, type_ in enumerate(types)]
    return KeyedTable(
        folder,
        columns=pa.schema([number, *reversed(keys), *others]),
        primary_key=tuple(field.name for field in keys),
        stable_row_ids=stable_row_ids,
        keyed_by_bytes=keyed_by_bytes,
    )


def values(rng: random.Random, names: Sequence[str]) -> Row:
    return {name: rng.choice(VALUES[name][1]) for name in names}


def operation(rng: random.Random, key: Key, ops: Sequence[Op]) -> Operation:
    """A patch carries any of the columns, perhaps none."""
    match rng.choice(ops):
        case Op.DELETE:
            return Operation(Op.DELETE, key)
        case Op.PATCH:
            return Operation(Op.PATCH, key, values(rng, rng.sample(list(VALUES), rng.randrange(len(VALUES)))))
        case _:
            return Operation(Op.UPSERT, key, values(rng, list(VALUES)))


def merge_all(table: KeyedTable, limits: MergeLimits, *, indexed: bool) -> None:
    """All that waits; without the upkeep of a round there is no key index, and merges scan."""
    if indexed:
        table.round(limits)
        return
    while isinstance(merge_next(table.context(), limits), Merged):
        finish_newest(table.context())


def history(
    table: KeyedTable, keys: Sequence[Key], rng: random.Random, ops: Sequence[Op], *, indexed: bool
) -> list[Operation]:
    """A random one; after each step the table holds what the dict does."""
    done: list[Operation] = []
    for step in range(5):
        for _ in range(rng.randrange(1, 4)):
            partition = rng.randrange(2)
            mine = keys[partition::2]
            chosen = rng.choices(mine, k=rng.randrange(1, 20))
            done += (operations := [operation(rng, key, ops) for key in chosen])
            table.generation(partition, operations)
        merge_all(table, rng.choice(LIMITS), indexed=indexed)
        table.check()
        if step % 2:
            compacted = compact_next(table.context(), COMPACTION, FileSizes(), with_sentinel=True)
            assert not isinstance(compacted, Refused)
            table.check()
            if indexed:
                keep_up(table.context(), UpkeepState())
    return done


@pytest.mark.in_turns("key_type", "stable_row_ids", "indexed", each=3)
@key_types
@both_kinds_of_ids
@with_and_without_index
def test_upserts_patches_and_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key_type: str, stable_row_ids: bool, indexed: bool
) -> None:
    """Whichever way a merge takes to write patches of a fragment."""
    table = made(tmp_path, key_type, stable_row_ids=stable_row_ids)
    _, keys = KEYS[key_type]
    rng = random.Random(f"{key_type} {stable_row_ids} {indexed}")
    monkeypatch.setattr(in_place, "least", lambda costs: rng.choice(list(costs)))
    history(table, keys, rng, [Op.UPSERT, Op.UPSERT, Op.PATCH, Op.PATCH, Op.DELETE], indexed=indexed)
    assert bool(table.context().keys.catalogs.read().runs) == indexed
    table.close()


@pytest.mark.in_turns("key_type", "indexed", each=2)
@key_types
@with_and_without_index
def test_the_last_operation_of_each_key_wins(tmp_path: Path, key_type: str, indexed: bool) -> None:
    """The rows that upserts and deletes leave, by DuckDB."""
    table = made(tmp_path, key_type, stable_row_ids=False)
    _, keys = KEYS[key_type]
    rng = random.Random(f"last {key_type} {indexed}")
    done = history(table, keys, rng, [Op.UPSERT, Op.UPSERT, Op.DELETE], indexed=indexed)
    found, expected = (sorted(repr(exact(row)) for row in rows) for rows in (table.rows(), last_rows(table, done)))
    assert found == expected
    table.close()


def last_rows(table: KeyedTable, operations: Sequence[Operation]) -> list[Row]:
    """Of each key that was not deleted last; each operation has the time that its place is."""
    schema, names = table.contract.rows.table, table.contract.primary_key
    rows = [{**dict(zip(names, o.id, strict=True)), **o.values} for o in operations]
    # DuckDB says which operation is the last one.  It has no type for each of Arrow's, so the values stay here.
    history = pa.Table.from_pylist(rows, schema).select(names)
    history = history.append_column("time", pa.array(range(len(rows))))
    history = history.append_column("deletes", pa.array([o.op is Op.DELETE for o in operations]))
    with duckdb.connect() as connection:
        connection.register("history", history)
        newest_first = f"row_number() over (partition by {', '.join(names)} order by time desc)"
        last = connection.sql(f"from history qualify {newest_first} = 1").filter("not deletes").to_arrow_table()
    stored = pa.Table.from_pylist([rows[place] for place in last["time"].to_pylist()], schema)
    found: list[Row] = stored.to_pylist()
    return found


@pytest.mark.parametrize("key_type", [name for name in KEYS if any(word in name for word in LATER)])
def test_rows_are_found_by_their_keys(tmp_path: Path, key_type: str) -> None:
    """Merged rows and those that wait, by Python's values and by texts of a command line."""
    table = made(tmp_path, key_type, stable_row_ids=False, keyed_by_bytes=True)
    keys = list(dict.fromkeys(KEYS[key_type][1]))[:12]
    rng = random.Random(key_type)
    for merged in (True, False):
        for partition in range(2):
            some = keys[partition::4] if merged else keys[partition + 2 :: 4]
            table.generation(partition, [Operation(Op.UPSERT, key, values(rng, list(VALUES))) for key in some])
        if merged:
            table.round()
    names = table.contract.primary_key
    reader = open_table(table.uri)
    for key in keys:
        (row,) = reader.get([key if len(key) > 1 else key[0]]).to_arrow().to_pylist()
        assert tuple(row[name] for name in names) == key
    shown = [
        list(row.values()) for row in plain_rows(reader.to_arrow(columns=list(names)).combine_chunks().to_batches()[0])
    ]
    texts = [str(one[0]) if len(names) == 1 else json.dumps(one) for one in shown]
    found = keys_of_texts(table.contract.rows, texts).select(names).to_pylist()
    assert {tuple(row.values()) for row in found} == set(keys)
    table.close()
