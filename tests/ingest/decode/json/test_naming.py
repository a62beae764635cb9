"""Former, dropped and unknown names, and defaults: both paths agree with these lines of plain Python."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidSchema
from lancewal_core.rows.fold import present_bits
from lancewal_core.rows.schema import PRESENT, RowSchema
from lancewal_core.table.contract import Column, Contract, DroppedField, FormerName
from lancewal_ingest.append.prepare import Preparer
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import Naming, naming_of
from tests.ingest.decode.json.cases import Ways, records
from tests.support.fuzzing import memory_bound

INNER = "struct<x: int32, t: string>"
COLUMNS = (
    Column(name="id", type="int64", field_ids=(0,)),
    Column(name="a", type="decimal128(38, 2)", field_ids=(1,)),
    Column(name="s", type="string", field_ids=(2,), default='"none"'),
    Column(name="st", type=INNER, field_ids=(3, 4, 5), default='{"x": 7}'),
    Column(name="sts", type=f"list<{INNER}>", field_ids=(6, 7, 8, 9)),
    Column(name="n", type="int64", field_ids=(10,), default="5"),
)


def contract(**terms: Any) -> Contract:
    return Contract(
        **{
            "format": 2, "table_uuid": "t", "topic": "orders", "topic_id": "i", "partitions": 1, "primary_key": ("id",),
            "region_key": ("id",), "start": (0,), "columns": COLUMNS, "columns_change": "1-a",
            "former_names": (
                FormerName(id=1, name="old a"), FormerName(id=1, name="older a"), FormerName(id=2, name="gone"),
                FormerName(id=6, name="list"), FormerName(id=4, name="wx"), FormerName(id=8, name="lx"),
                FormerName(id=77, name="nobody's"),
            ),
            "dropped": (
                DroppedField(name="gone"), DroppedField(name="lost"),
                DroppedField(name="again", forgotten=True), DroppedField(name="n"),
                DroppedField(name="inner", within=3), DroppedField(name="item", within=7),
            ),
            **terms,
        }
    )  # fmt: skip


class Bad(Exception):
    """The record is no row."""


PRESENT_NAMES = {"": {"id", "a", "s", "st", "sts", "n"}, "st.": {"x", "t"}, "sts.": {"x", "t"}}
FORMER_NAMES: dict[str, dict[str, str]] = {
    "": {"old a": "a", "older a": "a", "gone": "s", "list": "sts"}, "st.": {"wx": "x"}, "sts.": {"lx": "x"},
}  # fmt: skip
DROPPED_NAMES = {"": {"lost"}, "st.": {"inner"}, "sts.": {"item"}}


def level(members: Mapping[str, Any], path: str, ignore: bool, used: list[tuple[str, str]]) -> dict[str, Any]:
    """Members by present names; ``used`` gets the other names."""
    found: dict[str, Any] = {}
    for name, value in members.items():
        if name in PRESENT_NAMES[path]:
            present = name
        elif name in FORMER_NAMES[path]:
            present = FORMER_NAMES[path][name]
            used.append(("former", path + name))
        elif name in DROPPED_NAMES[path] or ignore:
            used.append(("dropped" if name in DROPPED_NAMES[path] else "unknown", path + name))
            continue
        else:
            raise Bad
        if present in found:
            raise Bad
        found[present] = value
    return found


def struct(value: Any, path: str, ignore: bool, used: list[tuple[str, str]]) -> Any:
    return None if value is None else {"x": None, "t": None, **level(value, path, ignore, used)}


def expected(
    members: Mapping[str, Any], op: str, ignore: bool
) -> tuple[dict[str, Any], set[str], list[tuple[str, str]]]:
    """The row, the columns that it names, and the other names that it uses."""
    used: list[tuple[str, str]] = []
    found = level(members, "", ignore, used)
    if found.get("id") is None:
        raise Bad
    named = set(found)
    if "st" in found:
        found["st"] = struct(found["st"], "st.", ignore, used)
    if found.get("sts") is not None:
        found["sts"] = [struct(one, "sts.", ignore, used) for one in found["sts"]]
    if op == "upsert":
        found = {"s": "none", "st": {"x": 7, "t": None}, "n": 5, **found}
    row = {name: found.get(name) for name in ("id", "a", "s", "st", "sts", "n")}
    return ({**dict.fromkeys(row), "id": row["id"]} if op == "delete" else row), named, used


def random_struct(rng: random.Random, path: str) -> Any:
    names = [name for name in ("x", "t", *FORMER_NAMES[path], *DROPPED_NAMES[path], "zz") if rng.random() < 0.25]
    values = {"x": 5, "t": "text", "wx": 6, "lx": 7}
    return (
        None
        if rng.random() < 0.1
        else {n: None if rng.random() < 0.2 else values.get(n, [{"any": None}]) for n in names}
    )


def random_members(rng: random.Random) -> dict[str, Any]:
    members: dict[str, Any] = {"id": rng.randrange(100)}
    for name in ("a", "s", "st", "sts", "n", "old a", "older a", "gone", "list", "lost", "zz", "again", "nobody's"):
        if rng.random() > (0.3 if name in PRESENT_NAMES[""] else 0.07):
            continue
        if rng.random() < 0.2:
            members[name] = None
        elif name in ("a", "old a", "older a"):
            members[name] = rng.choice([1, 2.25, 10**20])
        elif name == "st":
            members[name] = random_struct(rng, "st.")
        elif name in ("sts", "list"):
            members[name] = [random_struct(rng, "sts.") for _ in range(rng.randrange(3))]
        elif name == "n":
            members[name] = rng.randrange(5)
        else:
            members[name] = rng.choice(["text", "null"]) if name in ("s", "gone") else {"deep": [1, None, {"x": "y"}]}
    items = list(members.items())
    rng.shuffle(items)
    return dict(items)


def sent(rng: random.Random, count: int) -> Iterator[tuple[dict[str, Any], str]]:
    for _ in range(count):
        yield random_members(rng), rng.choice(["upsert", "upsert", "patch", "delete"])


@pytest.mark.parametrize("ignore", [False, True])
@pytest.mark.parametrize("singly_max", [1, 64])
def test_both_paths_give_what_the_rules_say(ignore: bool, singly_max: int) -> None:
    of = contract(on_unknown_column="ignore" if ignore else "reject")
    rng = random.Random(f"{ignore} {singly_max}")
    ways = Ways(rows=of.rows, naming=naming_of(of))
    for size in (1, 3, 40, 400):
        given = list(sent(rng, size))
        batch = records(
            [json.dumps(members).encode() for members, _ in given],
            headers=[[("lancewal.op", op.encode())] for _, op in given],
        )
        found = ways.both(batch, singly_max=singly_max)
        rows, named, uses, bad = [], [], Counter[tuple[str, str]](), []
        for offset, (members, op) in zip(batch.offsets, given, strict=True):
            try:
                row, columns, used = expected(members, op, ignore)
            except Bad:
                bad.append(offset)
                continue
            rows.append(row)
            named.append(columns if op == "patch" else None)
            uses.update(used)
        assert [rejected.offset for rejected in found.rejected] == bad
        assert [
            {**row, "a": None if row["a"] is None else float(row["a"])}
            for row in found.rows.select(list(of.rows.columns.names)).to_pylist()
        ] == [{**row, "a": None if row["a"] is None else float(row["a"])} for row in rows]
        assert {(name.use, name.path): count for name, count in found.other_names.items()} == uses
        present = found.rows.column(PRESENT)
        bits = present_bits(present.fill_null(bytes(of.rows.present_bytes)), of.rows)
        assert [
            None if is_null else {name for name, bit in zip(of.rows.columns.names, row, strict=True) if bit}
            for is_null, row in zip(present.is_null().to_pylist(), bits, strict=True)
        ] == named


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b'{"id": 1, "lost": 1, "lost": {"a": 1, "a": 2}}', None),
        (b'{"id": 1, "lost": 1, "id": 2}', "duplicate_member"),
        (b'{"id": 1, "a": 1, "old a": 1}', "duplicate_member"),
        (b'{"id": 1, "a": null, "\\u006fld a": null}', "duplicate_member"),
        (b'{"id": 1, "old a": null, "older a": null}', "duplicate_member"),
        (b'{"id": 1, "st": {"x": 1, "wx": 1}}', "duplicate_member"),
        (b'{"id": 1, "st": {"inner": 1, "inner": 2}}', None),
        (b'{"id": 1, "sts": [{"x": 1, "x": 1, "item": 3}]}', "duplicate_member"),
        (b'{"id": 1, "lost": NaN}', "not_json"),
        (b'{"id": 1, "lost": "\xff"}', "not_json"),
        (b'{"id": 1, "lost": 1}, "lost": {"id": 2}', "not_json"),
        (b'{"id": 1}, "_": {"id": 2}', "not_json"),
        (b'{"id": 1, "lost": ' + b"[" * 70 + b"]" * 70 + b"}", "too_deep"),
        (b'{"id": 1, "lost": "\\ud800"}', None),
        (b'{"id": 1, "lost": 1e999, "a": 1e2}', None),
        (b'{"id": 1, "lost": 1, "a": 1e-999999999}', "range"),
        (b'{"lost": 1}', "missing_key"),
        (b'{"id": 1, "lost": 1, "zz": 1}', "unknown_column"),
        (b'{"id": 1, "st": {"item": 1}}', "unknown_column"),
        (b'{"id": 1, "again": 1}', "unknown_column"),
        (b'{"id": 1, "old a": "x"}', "type"),
        (b'{"id": 1, "st": [], "lost": 1}', "type"),
    ],
)
def test_a_value_is_refused_by_the_same_rules_beside_names_that_are_passed_over(value: bytes, kind: str | None) -> None:
    of = contract()
    good = [b'{"id": 5, "lost": [1, {}]}', b'{"id": 6}', b'{"id": 7, "old a": 2}']
    for around in ([], good):
        found = Ways(rows=of.rows, naming=naming_of(of)).both(records([*around, value, *around]))
        assert [rejected.kind for rejected in found.rejected] == ([] if kind is None else [kind])
        assert found.rows.num_rows == 2 * len(around) + (kind is None)


def test_records_of_former_names_stay_on_the_fast_path() -> None:
    of = contract()
    decoder = JsonDecoder(of.rows, naming_of(of))
    values = [b'{"id": %d, "old a": 1.5, "lost": {"q": null}, "st": {"wx": 3}}' % n for n in range(5_000)]
    found = decoder.decode(values, pa.array([0] * len(values), pa.uint8()).to_numpy())
    assert sum(len(part.indexes) for part in found.parts) == len(values)
    assert decoder.single_records == 0


def test_a_patch_beside_a_number_that_is_none() -> None:
    """Arrow reads NaN, and orjson, which reads the names of patches, does not."""
    rows = RowSchema(
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("f", pa.float64()), ("x", pa.string())]),
        ("id",),
        ("id",),
    )
    values = [b'{"id": 1, "f": NaN, "x": null}', b'{"id": 2, "f": 1, "x": null}']
    found = Ways(rows=rows).both(records(values, headers=[[("lancewal.op", b"patch")]] * 2))
    assert [(bad.offset, bad.kind) for bad in found.rejected] == [(100, "not_json")]
    assert found.rows.column("id").to_pylist() == [2]


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("int8", "999"),
        ("int8", '"x"'),
        ("string", "none"),
        ("string", '"a", "b": 1'),
        ("string", '"a"}{'),
        ("date32", '"x"'),
    ],
)
def test_a_default_that_is_no_value_of_its_column_is_refused_by_name(type_: str, default: str) -> None:
    columns = (*COLUMNS[:1], Column(name="new", type=type_, field_ids=(1,), default=default))
    with pytest.raises(InvalidSchema, match="column 'new': its default"):
        Preparer(contract(columns=columns, former_names=(), dropped=()))


def test_a_contract_without_other_names_is_read_strictly() -> None:
    assert naming_of(contract(former_names=(), dropped=(), columns=COLUMNS[:2])) == Naming()
    forgotten = (DroppedField(name="again", forgotten=True),)
    assert naming_of(contract(former_names=(), dropped=forgotten, columns=COLUMNS[:2])) == Naming()


def test_names_that_no_other_value_has_do_not_stay_in_memory() -> None:
    of = JsonDecoder(contract().rows, naming_of(contract(on_unknown_column="ignore")))
    with memory_bound(48 << 20):
        for number in range(80):
            names = ",".join(f'"{number}_{n}":1' for n in range(10_000))
            (part,) = of.decode([f'{{"id":1,{names}}}'.encode()], np.zeros(1, np.uint8)).parts
            assert len(part.indexes) == 1


def test_memory_counts_defaults() -> None:
    long = json.dumps("x" * 5_000)
    columns = (*COLUMNS[:1], Column(name="new", type="string", field_ids=(1,), default=long))
    preparer = Preparer(contract(columns=columns, former_names=(), dropped=()))
    batch = records([b'{"id": 1}', b'{"id": 2, "new": null}'])
    decoded: Sequence[int] = preparer.weights.each(batch).tolist()
    assert min(decoded) >= 5_000
