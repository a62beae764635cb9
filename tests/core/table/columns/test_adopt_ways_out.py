"""Each refusal to adopt says a way out, which works: the calls that its message names are run as they stand there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.table.columns.changes import Added, Adopted, Dropped
from lancewal_core.table.contract import read_contract
from lancewal_tables.define.column_changes import parse_added, parse_adopted
from tests.core.table.columns.test_steps import NESTED, change, shown
from tests.support.flusher_tables import FlusherTable, upserts
from tests.support.foreign_blobs import add_blobs

ALL = [Adopted(())]
FIRST = ["region", "id", "a", "s", "tags", "address", "lines"]
LINES = pa.field("lines", pa.list_(pa.struct([("price", pa.int32())])))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path, more=[NESTED, LINES], file_format="2.2")
    made.generation(0, upserts(range(3)))
    made.round()
    yield made
    made.close()


def add(name: str, type_: pa.DataType) -> Callable[[FlusherTable], None]:
    return lambda table: table.dataset.add_columns(pa.schema([(name, type_)]))


def rename(*names: tuple[str, str]) -> Callable[[FlusherTable], None]:
    return lambda table: table.dataset.alter_columns(*({"path": path, "name": name} for path, name in names))


def retype(path: str, type_: pa.DataType) -> Callable[[FlusherTable], None]:
    return lambda table: table.dataset.alter_columns({"path": path, "data_type": type_})


def key_gives_its_name(table: FlusherTable) -> None:
    rename(("id", "key"))(table)
    rename(("a", "id"))(table)


def loses_all_first_members(table: FlusherTable) -> None:
    add("address", pa.struct([("city", pa.string())]))(table)
    table.dataset.drop_columns(["address.street", "address.zip"])


def loses_the_only_member_of_other_rows(table: FlusherTable) -> None:
    street = pa.struct([("street", pa.string())])
    schema = pa.schema([f.with_type(street) if f.name == "address" else f for f in table.dataset.schema])
    row = {"region": "r0", "id": 99, "address": {"street": "x"}}
    table.dataset.insert(pa.Table.from_pylist([row], schema))
    table.dataset.drop_columns(["address.street"])


def takes_a_dropped_id(table: FlusherTable) -> None:
    change(table, [Added(("n",), pa.int64())])
    change(table, [Dropped(("n",))])
    table.dataset.add_columns(pa.schema([("theirs", pa.int64())]))


def takes_a_dropped_id_within(table: FlusherTable) -> None:
    change(table, [Added(("address", "n"), pa.int64())])
    change(table, [Dropped(("address", "n"))])
    add("address", pa.struct([("theirs", pa.int64())]))(table)


def takes_an_id_of_now(table: FlusherTable) -> None:
    change(table, [Added(("n",), pa.int64())])
    table.dataset.drop_columns(["n"])
    table.dataset.add_columns(pa.schema([("theirs", pa.string())]))


def several(table: FlusherTable) -> None:
    table.dataset.add_columns({"theirs": "7"})
    add("A", pa.int8())(table)
    rename(("id", "key"))(table)


ACTS: dict[str, tuple[Callable[[FlusherTable], None], str, list[str]]] = {
    "not null": (lambda t: t.dataset.add_columns({"theirs": "7"}), "'theirs' is not nullable", [*FIRST, "theirs"]),
    "items not null": (
        add("theirs", pa.list_(pa.field("item", pa.struct([pa.field("x", pa.int8(), nullable=False)]), nullable=False))),
        "'theirs.item' is not nullable.*'theirs.item.x' is not nullable", [*FIRST, "theirs"],
    ),
    "type": (add("theirs", pa.date64()), "type date64", [*FIRST, "theirs_2"]),
    "blob": (lambda t: add_blobs(t.dataset, "new, 2.2"), "a blob column", FIRST),
    "key renamed": (rename(("id", "key")), "the primary key, 'id'", FIRST),
    "key renamed, and another has its name": (
        key_gives_its_name, "the primary key, 'id'", ["region", "id", "key", *FIRST[3:]],
    ),
    "key swapped": (rename(("id", "a"), ("a", "id")), "the primary key, 'id'", FIRST),
    "retyped": (retype("a", pa.int32()), "'a': it was given another type", ["region", "id", *FIRST[3:], "a_2"]),
    "member retyped": (retype("address.zip", pa.int64()), "'address.zip': it was given another type", FIRST),
    "member of a list retyped": (retype("lines.item.price", pa.int64()), "'lines.price': rows of version 1", FIRST[:-1]),
    "odd name": (add("_present", pa.int8()), "'_present' is reserved", [*FIRST, "present_2"]),
    "case": (add("A", pa.int8()), "the name 'A' is taken, by 'a'", [*FIRST, "A_2"]),
    "case after a rename": (
        rename(("s", "Tags")), "the name 'Tags' is taken, by 'tags'", ["region", "id", "a", "Tags_2", *FIRST[4:]],
    ),
    "members lost": (loses_all_first_members, "would lose which structs are null", [*FIRST[:5], "lines"]),
    "members of other rows lost": (
        loses_the_only_member_of_other_rows, "'address.street': some rows of the table were written without any other member",
        [*FIRST[:5], "lines"],
    ),
    "dropped id": (takes_a_dropped_id, "the id of a field that the contract had", [*FIRST, "theirs_2"]),
    "dropped id within": (takes_a_dropped_id_within, "the id of a field that the contract had", [*FIRST, "address_theirs_2"]),
    "id of now": (takes_an_id_of_now, "'n' was dropped, and Lance has given its id to a field of type string", FIRST),
    "several": (several, "'key': .*'theirs': .*'A': ", [*FIRST, "theirs", "A_2"]),
}  # fmt: skip


@pytest.mark.parametrize(("act", "named", "after"), ACTS.values(), ids=ACTS)
def test_the_way_out_works(
    table: FlusherTable, act: Callable[[FlusherTable], None], named: str, after: list[str]
) -> None:
    act(table)
    with pytest.raises(InvalidInput, match=named) as error:
        change(table, ALL)
    follow(table, str(error.value))
    change(table, ALL)
    assert list(shown(table)) == after


def follow(table: FlusherTable, message: str) -> None:
    """Run the calls of pylance and the commands that the message names."""
    calls: list[str] = re.findall(r"`(dataset\.[^`]*|lancewal table alter [^`]*)`", message)
    assert calls, message
    for call in calls:
        option = re.fullmatch(r"lancewal table alter --add-column '([^']*)'", call)
        if option:
            change(table, [parse_added(option[1].replace("TYPE", "string"))])
        else:
            eval(call, {"dataset": table.dataset})


def test_a_struct_in_files_of_the_oldest_format(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path, file_format="2.0")
    add("theirs", pa.struct([("x", pa.int8())]))(table)
    with pytest.raises(InvalidInput, match=r"format 2\.0, which cannot hold a null struct") as error:
        change(table, ALL)
    follow(table, str(error.value))
    assert change(table, ALL) == table.contract
    table.close()


def test_values_are_copied(table: FlusherTable) -> None:
    takes_a_dropped_id(table)
    table.dataset.update({"theirs": "id * 10"})
    with pytest.raises(InvalidInput) as error:
        change(table, ALL)
    follow(table, str(error.value))
    rows: list[dict[str, Any]] = table.dataset.to_table().to_pylist()
    assert {row["id"]: row["theirs_2"] for row in rows} == {0: 0, 1: 10, 2: 20}


def test_others_may_be_adopted_alone(table: FlusherTable) -> None:
    """A column that stops nothing need not be adopted."""
    add("theirs", pa.date64())(table)
    add("Odd: name", pa.int8())(table)
    rename(("s", "text"))(table)
    with pytest.raises(InvalidInput) as error:
        change(table, ALL)
    options = re.findall(r"--adopt-column (\w+|'[^']*')", str(error.value).partition("Nothing was changed")[2])
    assert options == ["text", "'\"Odd: name\"'"]
    change(table, [parse_adopted(option.strip("'")) for option in options])
    assert [c.name for c in read_contract(table.store, "").columns] == [
        "region", "id", "a", "text", "tags", "address", "lines", "Odd: name"
    ]  # fmt: skip


def test_a_name_with_signs_of_the_command_line_is_quoted_where_values_are_copied(table: FlusherTable) -> None:
    add("x: y", pa.date64())(table)
    with pytest.raises(InvalidInput) as error:
        change(table, ALL)
    (said,) = re.findall(r"--add-column ('[^']*')", str(error.value))
    assert parse_added(shlex.split(said)[0].replace("TYPE", "string")) == Added(("x: y_2",), pa.string())


def test_a_column_that_stops_merges_is_not_left_alone(table: FlusherTable) -> None:
    retype("a", pa.int32())(table)
    add("more", pa.int8())(table)
    with pytest.raises(InvalidInput) as error:
        change(table, ALL)
    assert str(error.value).endswith("Nothing was changed")


def test_a_retyped_column_gets_its_name_again(table: FlusherTable) -> None:
    """The way out leaves it with another name, which is given back by the usual command."""
    from lancewal_core.table.columns.changes import Renamed

    retype("a", pa.int32())(table)
    with pytest.raises(InvalidInput) as error:
        change(table, ALL)
    follow(table, str(error.value))
    change(table, ALL)
    change(table, [Renamed(("a_2",), "a")])
    assert shown(table)["a"] == "int32"
