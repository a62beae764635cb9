"""Changes of columns, as the next contract: every act, every refusal, and random histories against a plain model."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput, ObjectCorrupt
from lancewal_core.rows.carry import Tree, trees
from lancewal_core.rows.column_types import format_type, parse_type
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.declared import OF_ITSELF, ColumnSource
from lancewal_core.settings.sections import ValueFormat
from lancewal_core.table.columns import next_contract
from lancewal_core.table.columns.changes import (
    Added,
    Adoption,
    ContractChange,
    Dropped,
    Forgotten,
    Path,
    Renamed,
    Widened,
)
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.columns.versions import contract_trees
from lancewal_core.table.contract import (
    COLUMN_TERMS,
    Column,
    Contract,
    DroppedField,
    FormerName,
    decode_contract,
    encode_contract,
)
from tests.golden import json_formats as texts

COLUMNS = {
    "id": ("int64", (0,)),
    "region": ("string", (1,)),
    "fare": ("int32", (2,)),
    "address": ("struct<street: string, zip: int16>", (3, 4, 5)),
    "lines": ("list<struct<price: float32, tags: list<string>>>", (6, 7, 8, 9, 10)),
    "v": ("fixed_size_list<float32>[4]", (11,)),
    "at": ("timestamp[ms]", (12,)),
}
AROUND = Surroundings(
    highest_field_id=19,
    indexed={"v": ("nearest",)},
    table=(Tree("foreign", pa.string(), 18, ()), Tree("its: own", pa.string(), 19, ())),
)


def contract(**terms: Any) -> Contract:
    columns = tuple(Column(name=name, type=type_, field_ids=ids) for name, (type_, ids) in COLUMNS.items())
    given = {
        "columns": columns,
        "primary_key": ("id", "region"),
        "region_key": ("region",),
        "ttl_column": "at",
        "ttl_s": 9,
        "patches": False,
    }
    return texts.CONTRACT.model_copy(update={**given, **terms})


def widened(found: Contract) -> Contract:
    """The contract once the flusher has written all wider columns."""
    return found.model_copy(update={"columns": tuple(column.widened for column in found.columns)})


def asked(found: Contract) -> bool:
    return any(column.widening for column in found.columns)


def after(
    *changes: ContractChange, around: Surroundings = AROUND
) -> dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Type, ids and first ids of each column; the contract survives its text."""
    before = contract()
    found = changed(before, changes, around, "abc")
    assert (found.format, found.version) == (2, before.version + 1)
    assert decode_contract(encode_contract(found), "here") == found
    terms = {term: getattr(before, term) for term in (*COLUMN_TERMS, "version")}
    assert found.model_copy(update=terms) == before
    assert found.highest_field_id == max(
        around.highest_field_id, *found.field_ids, *(i for c in found.columns for i in c.widened.field_ids)
    )
    if asked(found):
        types = {c.ids: c.type for c in found.columns}
        assert all(types[c.ids] == c.type for c in before.columns)
        found = widened(found)
        assert decode_contract(encode_contract(found), "here") == found
    return {column.name: (column.type, column.field_ids, column.ids) for column in found.columns}


def unchanged(but: str = "") -> dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]]:
    return {name: (type_, ids, ids) for name, (type_, ids) in COLUMNS.items() if name != but}


def test_a_column_is_added_last_with_ids_above_all() -> None:
    found = after(Added(("note",), parse_type("list<string>")), Added(("n",), pa.int8()))
    assert found == unchanged() | {"note": ("list<string>", (20, 21), (20, 21)), "n": ("int8", (22,), (22,))}


def test_a_default_is_kept() -> None:
    found = changed(contract(), [Added(("n",), pa.int8(), "7")], AROUND, "abc")
    assert found.columns[-1].default == "7"
    assert decode_contract(encode_contract(found), "here").columns[-1].default == "7"


def test_members_come_and_go() -> None:
    found = after(
        Added(("address", "city"), pa.string()),
        Dropped(("address", "street")),
        Renamed(("address", "zip"), "code"),
        Added(("lines", "n"), pa.int8()),
        Dropped(("lines", "price")),
    )
    assert found == unchanged() | {
        "address": ("struct<code: int16, city: string>", (3, 5, 20), (3, 5, 20)),
        "lines": ("list<struct<tags: list<string>, n: int8>>", (6, 7, 9, 10, 21), (6, 7, 9, 10, 21)),
    }


def test_what_is_widened_has_a_new_id_and_remembers_its_first() -> None:
    found = after(
        Widened(("fare",), pa.int64()),
        Widened(("address",), parse_type("struct<street: string, zip: int32>")),
        Widened(("lines", "price"), pa.float64()),
        Renamed(("fare",), "price"),
    )
    assert found == unchanged("fare") | {
        "price": ("int64", (20,), (2,)),
        "address": ("struct<street: string, zip: int32>", (3, 4, 21), (3, 4, 5)),
        "lines": ("list<struct<price: float64, tags: list<string>>>", (6, 7, 22, 9, 10), (6, 7, 8, 9, 10)),
    }


def test_a_column_that_is_widened_twice_keeps_its_first_id() -> None:
    small = contract().columns[2].model_copy(update={"type": "int8"})
    before = contract(columns=(*contract().columns[:2], small, *contract().columns[3:]))
    once = widened(changed(before, [Widened(("fare",), pa.int32())], AROUND, "abc"))
    twice = widened(changed(once, [Widened(("fare",), pa.int64())], Surroundings(29, {}), "abc"))
    (fare,) = (c for c in twice.columns if c.name == "fare")
    assert (fare.type, fare.field_ids, fare.ids) == ("int64", (30,), (2,))


def test_a_column_that_is_being_widened_takes_other_changes() -> None:
    waits = changed(contract(), [Widened(("address", "zip"), pa.int32())], AROUND, "abc")
    assert [(c.name, c.type) for c in waits.columns] == [(c.name, c.type) for c in contract().columns]
    with pytest.raises(InvalidInput, match="it is being widened to int32"):
        changed(waits, [Widened(("address", "zip"), pa.int64())], AROUND, "abc")
    facts = Surroundings(waits.highest_field_id or 0, {})
    more = changed(waits, [Added(("address", "city"), pa.string()), Renamed(("address", "zip"), "code")], facts, "abc")
    column = widened(more).columns[3]
    assert (column.type, column.field_ids) == ("struct<street: string, code: int32, city: string>", (3, 4, 20, 21))
    gone = changed(more, [Dropped(("address", "code"))], facts, "abc")
    assert not asked(gone)
    assert {(d.name, d.within) for d in gone.dropped} == {("code", 3), ("zip", 3)}


def test_a_column_whose_widening_has_landed_in_the_table_is_the_contracts() -> None:
    wider: list[ContractChange] = [Widened(("fare",), pa.int64()), Widened(("address", "zip"), pa.int32())]
    waits = changed(contract(), wider, AROUND, "abc")
    facts = Surroundings(waits.highest_field_id or 0, {}, contract_trees(widened(waits)))
    changes = [Renamed(("fare",), "Fare"), Renamed(("address",), "addr"), Renamed(("addr", "zip"), "Zip")]
    found = changed(waits, changes, facts, "abd")
    assert [c.name for c in found.columns[2:4]] == ["Fare", "addr"]
    early = replace(facts, table=(*contract_trees(waits), Tree("Price", pa.int8(), 20, ())))
    with pytest.raises(InvalidInput, match="the table has 'Price'"):
        changed(waits, [Renamed(("fare",), "price")], early, "abd")


def test_fields_of_a_change_that_was_not_finished_are_taken() -> None:
    address = Tree("address", pa.struct([]), 3, (Tree("city", pa.string(), 21, ()),))
    note = Tree("note", pa.list_(pa.string()), 18, (Tree("item", pa.string(), 19, ()),))
    facts = Surroundings(21, {}, (note, address), left_over={18, 19, 21})
    changes = [
        Added(("note",), pa.list_(pa.string())),
        Added(("address", "city"), pa.string()),
        Added(("n",), pa.int8()),
    ]
    found = changed(contract(), changes, facts, "abc")
    assert {c.name: c.field_ids for c in found.columns[-5:]} == {
        "lines": (6, 7, 8, 9, 10), "v": (11,), "at": (12,), "note": (18, 19), "n": (22,)
    }  # fmt: skip
    assert found.columns[3].field_ids == (3, 4, 5, 21)
    for other in (Added(("note",), pa.string()), Added(("NOTE",), pa.list_(pa.string())), Renamed(("fare",), "note")):
        with pytest.raises(InvalidInput, match="'note' of type list<string>, from a change that was not finished"):
            changed(contract(), [other], facts, "abc")
    with pytest.raises(InvalidInput, match=r"the table has 'address\.city'"):
        changed(contract(), changes[1:], replace(facts, left_over=()), "abc")


def test_a_name_that_is_dropped_is_free_again_in_the_next_call() -> None:
    with pytest.raises(InvalidInput, match="the same call drops or renames"):
        after(Dropped(("fare",)), Added(("fare",), pa.int32()))
    once = changed(contract(), [Dropped(("fare",))], AROUND, "abc")
    again = changed(once, [Added(("fare",), pa.int32())], AROUND, "abc")
    assert {c.name: c.field_ids for c in again.columns}["fare"] == (20,)
    assert again.dropped == (DroppedField(name="fare", forgotten=True),)


def nested() -> Contract:
    """``contract`` with structs in a struct, in a list, and in a list in a struct."""
    type_ = "struct<zip: int16, inner: struct<zip: int16, b: int8>, lines: list<struct<zip: int16, c: int8>>>"
    deep = Column(name="deep", type=type_, field_ids=tuple(range(13, 22)))
    items = Column(name="items", type="list<struct<zip: int16, d: int8>>", field_ids=tuple(range(22, 26)))
    return contract(columns=(*contract().columns, deep, items))


RENAMED_STRUCTS: list[tuple[int, Path, list[ContractChange], Path]] = [
    (13, ("deep",), [Renamed(("deep",), "d2")], ("d2",)),
    (13, ("deep",), [Renamed(("deep",), "d2"), Renamed(("d2",), "d3")], ("d3",)),
    (15, ("deep", "inner"), [Renamed(("deep",), "d2")], ("d2", "inner")),
    (15, ("deep", "inner"), [Renamed(("deep", "inner"), "i2")], ("deep", "i2")),
    (15, ("deep", "inner"), [Renamed(("deep", "inner"), "i2"), Renamed(("deep",), "d2")], ("d2", "i2")),
    (19, ("deep", "lines"), [Renamed(("deep",), "d2"), Renamed(("d2", "lines"), "l2")], ("d2", "l2")),
    (23, ("items",), [Renamed(("items",), "i2")], ("i2",)),
]
"""Id of a struct, its path, renames that give it another path, and this path."""


def with_city(columns: Sequence[Tree], struct: int, name: str = "city") -> tuple[Tree, ...]:
    """The columns of a table in which the struct also has a string with id 30 and this name."""
    city = Tree(name, pa.string(), 30, ())
    return tuple(
        replace(tree, within=(*with_city(tree.within, struct, name), *([city] if tree.id == struct else [])))
        for tree in columns
    )


@pytest.mark.parametrize(("struct", "before", "renames", "after"), RENAMED_STRUCTS)
def test_a_struct_that_is_renamed_keeps_its_fields_outside_the_contract(
    struct: int, before: Path, renames: list[ContractChange], after: Path
) -> None:
    added = Added((*after, "city"), pa.string())
    facts = Surroundings(39, {}, with_city(trees(nested().rows), struct))
    has = re.escape(f"the table has {'.'.join((*before, 'city'))!r} of type string, which is not the contract's.")
    advice = re.escape(f"`--adopt-column {'.'.join((*before, 'city'))}`")
    for change in (added, Renamed((*after, "zip"), "city")):
        with pytest.raises(InvalidInput, match=f"{has}.*{advice}"):
            changed(nested(), [*renames, change], facts, "abc")
    other_case = replace(facts, table=with_city(trees(nested().rows), struct, "City"))
    for change in (added, Renamed((*after, "zip"), "city")):
        with pytest.raises(InvalidInput, match=r"City' of type string, which is not the contract's"):
            changed(nested(), [*renames, change], other_case, "abc")
    left = replace(facts, left_over={30})
    assert 30 in changed(nested(), [*renames, added], left, "abc").field_ids
    with pytest.raises(InvalidInput, match=r"city' of type string, from a change that was not finished"):
        changed(nested(), [*renames, Renamed((*after, "zip"), "city")], left, "abc")


@pytest.mark.parametrize(("struct", "before", "renames", "after"), RENAMED_STRUCTS)
def test_a_name_that_is_given_up_stays_so_when_its_struct_is_renamed(
    struct: int, before: Path, renames: list[ContractChange], after: Path
) -> None:
    facts = Surroundings(39, {}, trees(nested().rows))
    for gives_up in (Renamed((*before, "zip"), "code"), Dropped((*before, "zip"))):
        with pytest.raises(InvalidInput, match="the same call drops or renames 'zip'"):
            changed(nested(), [gives_up, *renames, Added((*after, "zip"), pa.int8())], facts, "abc")
    elsewhere = changed(nested(), [Dropped((*before, "zip")), *renames, Added(("zip",), pa.int8())], facts, "abc")
    assert elsewhere.columns[-1].field_ids == (40,)


def test_former_names_are_kept_until_a_field_has_them_or_they_are_forgotten() -> None:
    once = changed(contract(), [Renamed(("fare",), "price"), Renamed(("lines", "price"), "cost")], AROUND, "abc")
    twice = changed(once, [Renamed(("price",), "amount")], AROUND, "abc")
    names = (FormerName(id=2, name="fare"), FormerName(id=8, name="price"), FormerName(id=2, name="price"))
    assert twice.former_names == names
    assert changed(twice, [Added(("price",), pa.string())], AROUND, "abc").former_names == names[:2]
    assert changed(twice, [Forgotten(("fare",))], AROUND, "abc").former_names == names[1:]
    assert changed(twice, [Forgotten(("lines", "price"))], AROUND, "abc").former_names == (names[0], names[2])
    dropped = changed(twice, [Dropped(("amount",))], AROUND, "abc")
    assert dropped.former_names == names[1:2]
    assert dropped.dropped == tuple(DroppedField(name=name) for name in ("amount", "fare", "price"))
    forgotten = changed(dropped, [Forgotten(("price",))], AROUND, "abc")
    assert [d.name for d in forgotten.dropped if d.forgotten] == ["price"]
    assert (forgotten.columns_change, forgotten.version) == (dropped.columns_change, dropped.version + 1)
    with pytest.raises(InvalidInput, match="forgetting 'x': it is neither a former name"):
        changed(dropped, [Forgotten(("x",))], AROUND, "abc")


@pytest.mark.parametrize(
    "changes",
    [
        [Added(("note",), pa.string(), '"a"'), Added(("address", "city"), pa.string())],
        [Renamed(("fare",), "price"), Renamed(("address", "zip"), "code")],
        [Dropped(("fare",)), Dropped(("lines", "price"))],
        [Widened(("fare",), pa.int64()), Widened(("lines", "price"), pa.float64())],
    ],
)
def test_a_call_that_is_made_again_changes_nothing(changes: list[ContractChange]) -> None:
    once = changed(contract(), changes, AROUND, "abc")
    assert once != contract()
    assert changed(once, changes, AROUND, "def") is once
    if asked(once):
        assert changed(done := widened(once), changes, AROUND, "def") is done


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (Added(("fare",), pa.string()), "adding 'fare': the name 'fare' is taken, by 'fare'"),
        (Added(("FARE",), pa.string()), "the name 'FARE' is taken, by 'fare'"),
        (Added(("foreign",), pa.string()), "the table has 'foreign' of type string, which is not the contract's"),
        (Renamed(("fare",), "foreign"), "the table has 'foreign'.* `--adopt-column foreign`"),
        (Added(("its: own",), pa.string()), "the table has 'its: own'.* `--adopt-column '\"its: own\"'`"),
        (Added(("_offset",), pa.string()), "reserved"),
        (Added(("_RowId",), pa.string()), "reserved"),
        (Added(("a`b",), pa.string()), "not allowed"),
        (Added(("address", "zip"), pa.string()), "the name 'zip' is taken"),
        (Added(("address", "ZIP"), pa.string()), "the name 'ZIP' is taken"),
        (Added(("address", "a b"), pa.string()), "struct member 'a b': this name cannot be written"),
        (Added(("address", "n"), pa.int8(), "1"), "a member of a struct cannot have a default"),
        (Added(("fare", "n"), pa.int8()), "'fare' has no members, since type int32 has none"),
        (Added(("fares", "n"), pa.int8()), "there is no 'fares'"),
        (Added(("", "n"), pa.int8()), "a part of the name is empty"),
        (Added(("id", "n"), pa.int8()), "Keys never change"),
        (Widened(("id",), pa.int64()), "Keys never change"),
        (Renamed(("region",), "place"), "Keys never change"),
        (Dropped(("region",)), "Keys never change"),
        (Widened(("at",), pa.timestamp("us")), "rows expire by 'at'"),
        (Renamed(("at",), "time"), "rows expire by 'at'"),
        (Dropped(("at",)), "rows expire by 'at'"),
        (Widened(("v",), parse_type("fixed_size_list<float64>[4]")), r"the column is indexed \(nearest\)"),
        (Dropped(("v",)), r"the column is indexed \(nearest\)"),
        (Widened(("fare",), pa.int32()), "it has type int32 already"),
        (Widened(("fare",), pa.int16()), "widening 'fare' to int16: not every value of int32 is one of int16"),
        (Widened(("fare",), pa.float64()), "not every value of int32 is one of double|float64"),
        (Widened(("fare",), pa.string()), "Add a column of the new type"),
        (Widened(("address",), parse_type("struct<street: string>")), "not every value"),
        (Widened(("address",), parse_type("struct<zip: int32, street: string>")), "not every value"),
        (Widened(("address",), parse_type("list<string>")), "not every value"),
        (Widened(("none",), pa.int64()), "there is no 'none'"),
        (Renamed(("fare",), "address"), "the name 'address' is taken"),
        (Renamed(("fare",), "fare"), "the name 'fare' is taken"),
        (Renamed(("none",), "x"), "there is no 'none'"),
        (Renamed(("address", "none"), "x"), "there is no 'address.none'"),
        (Renamed(("address", "zip"), "Street"), "the name 'Street' is taken"),
        (Dropped(("none",)), "there is no 'none'"),
        (Dropped(("lines", "item")), "there is no 'lines.item'"),
    ],
)
def test_refusals_name_the_change_and_change_nothing(change: ContractChange, named: str) -> None:
    with pytest.raises(InvalidInput, match=named) as error:
        changed(
            contract(), [Renamed(("address", "zip"), "code"), change] if "code" in named else [change], AROUND, "abc"
        )
    assert str(error.value).endswith("Nothing was changed")


def test_a_name_is_forgotten_each_time_and_the_same_call_is_known_again() -> None:
    """A former name leaves nothing else behind.  A name that was forgotten once may have come, and gone, again."""
    calls: list[ContractChange] = [
        Renamed(("fare",), "price"),
        Forgotten(("fare",)),
        Added(("fare",), pa.int8()),
        Dropped(("fare",)),
        Forgotten(("fare",)),
    ]
    now = contract()
    for call in calls:
        after = changed(now, [call], AROUND, "abc")
        assert after.version == now.version + 1
        assert changed(after, [call], AROUND, "abc") is after
        now = after
    assert not now.former_names
    assert all(name.forgotten for name in now.dropped)


@pytest.mark.parametrize(
    ("first", "gives", "path"),
    [
        (Dropped(("fare",)), Added(("fare",), pa.int8()), ("fare",)),
        (Renamed(("fare",), "price"), Renamed(("v",), "fare"), ("fare",)),
        (Dropped(("address", "zip")), Added(("address", "zip"), pa.int8()), ("address", "zip")),
    ],
)
def test_a_name_that_a_field_has_got_is_not_forgotten(first: ContractChange, gives: ContractChange, path: Path) -> None:
    """By the same call, or by one before: nothing is left to forget."""
    before = changed(contract(), [first], AROUND, "abc")
    has = "records use this name for a field now.*Leave `--forget-name` out"
    with pytest.raises(InvalidInput, match=f"forgetting '{'.'.join(path)}': {has}"):
        changed(before, [gives, Forgotten(path)], AROUND, "abc")
    with pytest.raises(InvalidInput, match=has):
        changed(changed(before, [gives], AROUND, "abc"), [Forgotten(path), Added(("x",), pa.int8())], AROUND, "abc")


def test_columns_are_looked_at_once_for_all_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a call takes a time that grows with the square of its changes."""
    many = changed(contract(), [Added((f"n{i}",), pa.int8()) for i in range(20)], AROUND, "abc")
    looks: list[RowSchema] = []

    def looked(rows: RowSchema) -> tuple[Tree, ...]:
        looks.append(rows)
        return trees(rows)

    monkeypatch.setattr(next_contract, "trees", looked)
    changed(many, [Renamed((f"n{i}",), f"m{i}") for i in range(20)], AROUND, "abc")
    assert looks == [many.rows]


def test_a_struct_keeps_a_member_and_a_name_may_change_its_case() -> None:
    with pytest.raises(InvalidInput, match="keeps at least one member"):
        changed(contract(), [Dropped(("address", "zip")), Dropped(("address", "street"))], AROUND, "abc")
    assert "Fare" in after(Renamed(("fare",), "Fare"))


def test_a_struct_keeps_a_member_of_each_version() -> None:
    """A file of the first version has nothing of a struct of which all members came later."""
    first = contract()
    later = changed(first, [Added(("address", "n"), pa.int8()), Added(("lines", "n"), pa.int8())], AROUND, "abc")
    facts = Surroundings(29, {}, earlier=(first,))
    one = changed(later, [Dropped(("address", "zip")), Dropped(("lines", "price"))], facts, "abc")
    facts = Surroundings(29, {}, earlier=(later, first))
    for path in (("address", "street"), ("lines", "tags")):
        with pytest.raises(InvalidInput, match="rows of version 1 of the contract have no other member"):
            changed(one, [Dropped(path)], facts, "abc")
    without = changed(one, [Dropped(("address", "n"))], facts, "abc")
    assert [c.type for c in without.columns if c.name == "address"] == ["struct<street: string>"]
    whole = changed(one, [Dropped(("address",)), Added(("place",), parse_type("struct<a: int8>"))], facts, "abc")
    more = changed(whole, [Added(("place", "b"), pa.int8())], Surroundings(39, {}), "abc")
    with pytest.raises(InvalidInput, match="rows of version 4 of"):
        changed(more, [Dropped(("place", "a"))], Surroundings(49, {}, earlier=(whole, one, later, first)), "abc")


@pytest.mark.parametrize("change", [Added(("address", "n"), pa.int8()), Renamed(("address", "zip"), "code"),
                                    Dropped(("address", "zip"))])  # fmt: skip
def test_members_of_older_formats_stay(change: ContractChange) -> None:
    older = Surroundings(19, {}, file_format="2.0")
    with pytest.raises(InvalidInput, match=r"2\.0 or 2\.1"):
        changed(contract(), [change], older, "abc")
    assert "n" in {c.name for c in changed(contract(), [Added(("n",), pa.int8())], older, "abc").columns}
    for type_ in ("struct<n: int8>", "list<struct<n: int8>>"):
        with pytest.raises(
            InvalidInput, match=r"format 2\.0, which cannot hold a null struct\. Add a column for each member"
        ):
            changed(contract(), [Added(("n",), parse_type(type_))], older, "abc")
        changed(contract(), [Added(("n",), parse_type(type_))], replace(older, file_format="2.1"), "abc")
    found = widened(changed(contract(), [Widened(("address", "zip"), pa.int32())], older, "abc"))
    assert "zip: int32" in next(c.type for c in found.columns if c.name == "address")


def test_a_map_comes_and_goes_as_a_whole() -> None:
    map_ = pa.map_(pa.string(), pa.struct([("n", pa.int8())]))
    for older in ("2.0", "2.1"):
        facts = Surroundings(40, {}, file_format=older)
        with pytest.raises(
            InvalidInput, match=rf"format {older}, which cannot hold a (map|null struct)\. Add a column"
        ):
            changed(contract(), [Added(("m",), pa.list_(map_))], facts, "abc")
    found = changed(contract(), [Added(("m",), map_)], Surroundings(40, {}), "abc")
    column = next(c for c in found.columns if c.name == "m")
    assert (column.type, len(column.field_ids)) == ("map<string, struct<n: int8>>", 5)
    assert found.rows.columns.field("m").type == map_
    wider = pa.map_(pa.string(), pa.struct([("n", pa.int16())]))
    changes: dict[str, ContractChange] = {
        "has no members, since type map<string, struct<n: int8>> has none": Added(("m", "n"), pa.int8()),
        "m.n": Widened(("m", "n"), pa.int16()),
        "not every value of map<string, struct<n: int8>> is one of": Widened(("m",), wider),
        "m.value": Renamed(("m", "value"), "v"),
    }
    for why, change in changes.items():
        with pytest.raises(InvalidInput, match=why):
            changed(found, [change], Surroundings(40, {}), "abd")
    renamed = changed(found, [Renamed(("m",), "n")], Surroundings(40, {}), "abd")
    assert next(c for c in renamed.columns if c.name == "n").field_ids == column.field_ids
    assert "n" not in changed(renamed, [Dropped(("n",))], Surroundings(40, {}), "abe").rows.columns.names


@pytest.mark.parametrize("seed", range(30))
def test_random_changes_of_columns_against_a_dict(seed: int) -> None:
    draw = random.Random(seed)
    model = {name: parse_type(type_) for name, (type_, _) in COLUMNS.items()}
    ids = {name: ids[0] for name, (_, ids) in COLUMNS.items()}
    used = {i for _, own in COLUMNS.values() for i in own}
    found, free = contract(), 20
    for step in range(12):
        name = draw.choice([name for name in model if name not in ("id", "region", "at")] or ["new"])
        match draw.choice(("add", "drop", "rename")):
            case "add":
                new, type_ = f"n{step}", parse_type(draw.choice(("int8", "list<string>", "struct<a: int8, b: string>")))
                change: ContractChange = Added((new,), type_)
                model[new], ids[new] = type_, free
            case "drop" if len(model) > 4:
                change = Dropped((name,))
                del model[name], ids[name]
            case _:
                change = Renamed((name,), f"r{step}")
                model = {(f"r{step}" if old == name else old): type_ for old, type_ in model.items()}
                ids = {(f"r{step}" if old == name else old): own for old, own in ids.items()}
        found = changed(found, [change], Surroundings(free - 1, {}), "abc")
        free = max(free, *(i + 1 for i in found.field_ids))
        assert {c.name: c.type for c in found.columns} == {name: format_type(type_) for name, type_ in model.items()}
        assert [c.name for c in found.columns] == list(model)
        assert {c.name: c.field_ids[0] for c in found.columns} == ids
        new_ids = set(found.field_ids) - used
        assert isinstance(change, Added) == bool(new_ids)
        used |= new_ids
    assert decode_contract(encode_contract(found), "here") == found


@pytest.mark.parametrize(
    ("old", "new", "ids"),
    [
        ("int32", "int64", (9,)),
        ("list<int32>", "list<int64>", (2, 9)),
        ("struct<a: int8, b: string>", "struct<a: int16, b: string>", (2, 9, 4)),
        ("struct<a: int8, b: uint8>", "struct<a: int16, b: int16>", (2, 9, 10)),
        ("fixed_size_list<float32>[3]", "fixed_size_list<float64>[3]", (9,)),
        ("int64", "int32", None),
        ("int64", "decimal128(20, 0)", None),
        ("float64", "float32", None),
        ("list<int32>", "int64", None),
        ("struct<a: int8>", "struct<b: int16>", None),
        ("struct<a: int8>", "struct<a: int16, b: int8>", None),
        ("timestamp[s]", "timestamp[ns]", None),
    ],
)
def test_fields_whose_own_type_changes_get_ids(old: str, new: str, ids: tuple[int, ...] | None) -> None:
    count = 1 + old.count(": ") + old.count("list<") - old.count("fixed_size_list")
    column = Column(name="c", type=old, field_ids=tuple(range(2, 2 + count)))
    before = contract(columns=(*contract().columns[:2], column), ttl_column=None, ttl_s=None)
    change = Widened(("c",), parse_type(new))
    if ids is None:
        with pytest.raises(InvalidInput, match="not every value"):
            changed(before, [change], Surroundings(8, {}), "abc")
    else:
        assert changed(before, [change], Surroundings(8, {}), "abc").columns[-1].widened.field_ids == ids


@pytest.mark.parametrize(
    ("type_", "default", "changes", "left"),
    [
        ("struct<x: int32, y: string>", '{"x": 1, "y": "q"}', [Renamed(("d", "y"), "z")], '{"x": 1, "z": "q"}'),
        ("struct<x: int32, y: string>", '{"x": 1, "y": "q"}', [Dropped(("d", "y"))], '{"x": 1}'),
        ("struct<x: int32, y: string>", '{"x": 1}', [Renamed(("d", "y"), "z")], '{"x": 1}'),
        ("struct<x: int32, y: string>", '{"x": 1, "y": "q"}', [Renamed(("d",), "e")], '{"x": 1, "y": "q"}'),
        (
            "struct<x: float64, y: struct<u: string, w: int8>>", '{"x": 1.10, "y": {"u": "\\u00e4", "w": null}}',
            [Renamed(("d", "y", "u"), "t"), Dropped(("d", "y", "w"))], '{"x": 1.10, "y": {"t": "\\u00e4"}}',
        ),
        (
            "list<struct<x: int64, y: string>>", '[{"x": 9007199254740993, "y": "q"}, {"y": "r"}, null]',
            [Renamed(("d", "x"), "z"), Dropped(("d", "y"))], '[{"z": 9007199254740993}, {}, null]',
        ),
    ],
)  # fmt: skip
def test_a_default_follows_its_members(type_: str, default: str, changes: list[ContractChange], left: str) -> None:
    """Each number keeps its text."""
    added = changed(contract(), [Added(("d",), parse_type(type_), default)], AROUND, "abc")
    around = replace(AROUND, highest_field_id=added.highest_field_id or 0)
    found = changed(added, changes, around, "abd")
    assert found.columns[-1].default == left


def test_a_default_follows_members_that_swap_their_names() -> None:
    """Ids of the column ``d`` and its members begin at 20."""
    type_, default = (
        "struct<x: int64, y: string, z: struct<u: int8>, l: list<struct<x: int8, y: int8>>>",
        ('{"x": 9007199254740993, "y": "q", "z": {"u": 1}, "l": [{"x": 1, "y": 2}, {"y": 3}]}'),
    )
    added = changed(contract(), [Added(("d",), parse_type(type_), default)], AROUND, "abc")
    adoption = Adoption({21: "y", 22: "x", 24: "w", 27: "y", 28: "x"}, frozenset({23}), ())
    found = changed(added, [adoption], replace(AROUND, highest_field_id=added.highest_field_id or 0), "abd")
    assert found.columns[-1].type == "struct<y: int64, x: string, l: list<struct<y: int8, x: int8>>>"
    assert found.columns[-1].default == '{"y": 9007199254740993, "x": "q", "l": [{"y": 1, "x": 2}, {"x": 3}]}'


def test_a_value_of_a_dropped_member_does_not_come_back_by_the_default() -> None:
    added = changed(
        contract(), [Added(("d",), parse_type("struct<x: int32, y: string>"), '{"x": 1, "y": "q"}')], AROUND, "abc"
    )
    for change in (Dropped(("d", "y")), Added(("d", "y"), parse_type("string"))):
        added = changed(added, [change], replace(AROUND, highest_field_id=added.highest_field_id or 0), "abd")
    assert added.columns[-1].default == '{"x": 1}'


def test_an_open_widening_of_a_member_is_known_again() -> None:
    wider = Widened(("lines",), parse_type("list<struct<price: float64, tags: list<string>>>"))
    found = changed(contract(), [wider], AROUND, "abc")
    again = changed(found, [wider], replace(AROUND, highest_field_id=found.highest_field_id or 0), "abd")
    assert again == found
    done_ = widened(found)
    assert changed(done_, [wider], replace(AROUND, highest_field_id=found.highest_field_id or 0), "abe") == done_


EPOCH = ColumnSource("epoch_ms", "ts")


def sourced() -> Contract:
    """``contract`` with a column whose values have a source of their own in records."""
    at = Column(name="sent", type="timestamp[ms]", field_ids=(13,), json_form="epoch_ms", field="ts")
    of = contract(format=2)
    return of.model_copy(update={"columns": (*of.columns, at)})


def source_of(found: Contract, name: str) -> ColumnSource:
    return next(column.source for column in found.columns if column.name == name)


def test_a_column_keeps_its_source_when_it_is_renamed_and_widened() -> None:
    found = changed(sourced(), [Renamed(("sent",), "at_sea"), Widened(("at_sea",), pa.timestamp("us"))], AROUND, "a")
    assert source_of(found, "at_sea") == EPOCH
    assert source_of(widened(found), "at_sea") == EPOCH


def test_a_column_is_added_with_its_source_once() -> None:
    added = Added(("seen",), pa.string(), '"x"', ColumnSource("text", "gone"))
    of = contract(format=2, dropped=(DroppedField(name="gone"),))
    found = changed(of, [added], AROUND, "a")
    assert source_of(found, "seen") == added.source
    assert found.dropped == (DroppedField(name="gone", forgotten=True),)
    assert changed(found, [added], AROUND, "b") is found
    with pytest.raises(InvalidInput, match="'seen' is taken"):
        changed(found, [replace(added, source=OF_ITSELF)], AROUND, "b")


@pytest.mark.parametrize("value_format", ["avro", "protobuf", "connect-json"])
def test_a_format_whose_schemas_say_forms_gets_no_column_with_one(value_format: ValueFormat) -> None:
    of = contract(format=2, value_format=value_format)
    with pytest.raises(InvalidInput, match=f"json epoch_ms: the table's format of values is {value_format}"):
        changed(of, [Added(("seen",), pa.timestamp("ms"), None, EPOCH)], AROUND, "a")
    assert changed(of, [Added(("seen",), pa.timestamp("ms"), None, ColumnSource(None, "ts"))], AROUND, "a") != of


def test_a_contract_with_a_form_from_before_is_altered() -> None:
    of = sourced().model_copy(update={"value_format": "avro"})
    assert source_of(changed(of, [Renamed(("sent",), "at_sea")], AROUND, "a"), "at_sea") == EPOCH


def test_records_may_still_use_the_field_of_a_dropped_column() -> None:
    found = changed(sourced(), [Dropped(("sent",))], AROUND, "a")
    assert found.dropped == (DroppedField(name="ts"), DroppedField(name="sent", forgotten=True))
    assert changed(found, [Dropped(("sent",))], AROUND, "b") is found
    again = changed(found, [Added(("sent",), pa.timestamp("ms"))], AROUND, "b")
    assert source_of(again, "sent") == OF_ITSELF


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (Added(("ts",), pa.string()), "columns 'sent' and 'ts' both claim the name 'ts' in records"),
        (Added(("n",), pa.int64(), None, EPOCH), "json epoch_ms, which is a form of type timestamp, not of int64"),
        (
            Added(("n",), pa.int64(), None, ColumnSource(None, "region")),
            "'region' and 'n' both claim the name 'region' in records",
        ),
        (Added(("n",), pa.int64(), None, ColumnSource(None, "a.b")), "field 'a.b': members of nested objects"),
        (
            Added(("address", "n"), pa.int64(), None, ColumnSource("number_text")),
            "a member of a struct cannot have json, field or a source",
        ),
        (Renamed(("fare",), "ts"), "both claim the name 'ts' in records"),
    ],
)
def test_sources_that_no_record_could_have_are_refused(change: ContractChange, named: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(named)):
        changed(sourced(), [change], AROUND, "a")


def in_turn(start: Contract, *calls: ContractChange) -> Contract:
    """The contract after calls of one change each.  Each call is made twice, and known when it comes again."""
    now = start
    for call in calls:
        facts = replace(AROUND, highest_field_id=now.highest_field_id or AROUND.highest_field_id)
        now = changed(now, [call], facts, "a")
        assert changed(now, [call], facts, "b") is now
    return now


def test_a_rename_changes_no_name_in_records_if_the_column_has_another_one_there() -> None:
    filled = Added(("place",), pa.int64(), None, ColumnSource(metadata="kafka.offset"))
    found = in_turn(sourced(), Renamed(("sent",), "at_sea"), filled, Renamed(("place",), "position"))
    assert found.former_names == ()
    assert [d.name for d in found.dropped if not d.forgotten] == []
    assert source_of(found, "at_sea") == EPOCH
    back = in_turn(found, Renamed(("at_sea",), "sent"), Renamed(("sent",), "at_sea"))
    assert (back.former_names, [c.name for c in back.columns]) == ((), [c.name for c in found.columns])
    own = in_turn(back, Added(("sent",), pa.string()))
    with pytest.raises(InvalidInput, match="the name 'at_sea' is taken"):
        in_turn(own, Renamed(("sent",), "at_sea"))


def test_a_new_column_takes_only_the_name_that_records_use_for_it() -> None:
    apart = Added(("fare",), pa.int64(), None, ColumnSource(field="fare_2"))
    filled = Added(("fare",), pa.int64(), None, ColumnSource(metadata="kafka.offset"))
    for new in (apart, filled):
        renamed = in_turn(contract(), Renamed(("fare",), "price"), new)
        assert renamed.former_names == (FormerName(id=2, name="fare"),)
        with pytest.raises(InvalidInput, match="the name 'price' is taken"):
            in_turn(renamed, Renamed(("fare",), "price"))
        dropped = in_turn(contract(), Dropped(("fare",)), new)
        assert dropped.dropped == (DroppedField(name="fare"),)
        assert DroppedField(name="fare") in in_turn(dropped, Dropped(("fare",))).dropped
    other = in_turn(contract(), Dropped(("fare",)), Added(("x",), pa.int64()), Renamed(("address", "zip"), "code"))
    to = in_turn(other, Added(("y",), pa.int64(), None, ColumnSource(field="z")), Renamed(("y",), "fare"))
    assert DroppedField(name="fare") in to.dropped


def test_a_contract_does_not_grow_with_names_that_come_and_go() -> None:
    number = pa.int64()
    structs = pa.struct([("a", number), ("b", number)])
    cycle: list[ContractChange] = [
        Added(("n",), number),
        Dropped(("n",)),
        Added(("n",), number, None, ColumnSource(field="m")),
        Renamed(("n",), "k"),
        Dropped(("k",)),
        Added(("s",), structs),
        Dropped(("s", "a")),
        Dropped(("s",)),
    ]
    once = in_turn(contract(), *cycle)
    many = in_turn(once, *cycle * 5)
    assert sorted(map(str, many.dropped)) == sorted(map(str, once.dropped))
    assert many.former_names == once.former_names == ()


def test_no_key_has_two_forms() -> None:
    key = COLUMNS["region"]
    of = contract(format=2)
    lenient = Column(name="region", type=key[0], field_ids=key[1], json_form="text")
    of = of.model_copy(update={"columns": (of.columns[0], lenient, *of.columns[2:])})
    with pytest.raises(ObjectCorrupt, match="is in the primary key: the values of keys have only one form"):
        decode_contract(encode_contract(of), "here")
