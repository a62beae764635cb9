"""What other programs have done to columns is adopted, on a real table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import ContractMismatch, InvalidInput
from lancewal_core.table.columns.changes import Added, Adopted, Dropped, Renamed
from lancewal_core.table.columns.restored import check_fit
from lancewal_core.table.contract import read_contract
from lancewal_core.table.lance.table import LanceTable
from tests.core.table.columns.test_steps import NESTED, Killed, Steps, change, shown
from tests.support.flusher_tables import FlusherTable, patch, upsert, upserts
from tests.support.foreign_blobs import add_blobs

ALL = [Adopted(())]
VECTOR = pa.list_(pa.float32(), 2)


@pytest.fixture
def table(tmp_path: Path) -> FlusherTable:
    made = FlusherTable(tmp_path, more=[NESTED], file_format="2.2")
    made.generation(0, upserts(range(6)))
    for row in made.model.values():
        row["address"] = None
    made.round()
    return made


def embed(table: FlusherTable) -> None:
    """Another program adds a vector to each row."""

    @lance.batch_udf(output_schema=pa.schema([("vector", VECTOR)]))
    def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pa.array([[id, -id] for id in batch["id"].to_pylist()], VECTOR)], ["vector"])

    table.dataset.add_columns(compute, read_columns=["id"])
    for row in table.model.values():
        row["vector"] = [float(row["id"]), float(-row["id"])]


def rename(table: FlusherTable, path: str, name: str) -> None:
    table.dataset.alter_columns({"path": path, "name": name})


def test_a_column_is_adopted(table: FlusherTable) -> None:
    """Its values stay, patches set it, and the command stores no data and changes nothing twice."""
    embed(table)
    table.generation(0, [patch(1, a=5), upsert(2, a=5)])  # they wait under the contract from before
    data = sorted(Path(table.uri, "data").glob("*"))
    contract = change(table, ALL)
    assert sorted(Path(table.uri, "data").glob("*")) == data
    assert shown(table)["vector"] == "fixed_size_list<float32>[2]"
    versions = len(table.dataset.versions())
    for again in (ALL, [Adopted(("vector",))]):
        assert change(table, again) == contract
    assert len(table.dataset.versions()) == versions
    table.take_up()
    table.generation(0, [patch(3, vector=[7.0, 8.0]), patch(4, a=9), upsert(5, a=1)])
    for row in table.model.values():
        row.setdefault("vector", None)
        row.setdefault("address", None)
    table.round()
    table.check()
    table.close()


def test_renames_and_drops_are_adopted(table: FlusherTable) -> None:
    rename(table, "s", "text")
    rename(table, "address.zip", "code")
    table.dataset.drop_columns(["tags"])
    with pytest.raises(ContractMismatch, match=r"--adopt-column '\*'"):
        check_fit(table.store, LanceTable(table.uri).newest(), read_contract(table.store, ""))
    contract = change(table, ALL)
    assert shown(table) == {
        "region": "string", "id": "int64", "a": "int64", "text": "string", "address": "struct<street: string, code: int32>"
    }  # fmt: skip
    assert {(f.id, f.name) for f in contract.former_names} == {(3, "s"), (8, "zip")}
    assert [d.name for d in contract.dropped] == ["tags"]
    assert change(table, ALL) == contract
    for path in (("text",), ("s",), ("tags",), ("address", "code"), ("address", "zip")):
        assert change(table, [Adopted(path)]) == contract
    table.close()


def test_members_are_adopted(table: FlusherTable) -> None:
    table.dataset.add_columns(pa.schema([pa.field("address", pa.struct([("geo", pa.list_(pa.float32()))]))]))
    change(table, [Adopted(("address", "geo"))])
    assert shown(table)["address"] == "struct<street: string, zip: int32, geo: list<float32>>"
    contract = read_contract(table.store, "")
    assert change(table, [Adopted(("address", "geo"))]) == contract
    table.dataset.drop_columns(["address.geo"])
    contract = change(table, [Adopted(("address", "geo"))])
    assert shown(table)["address"] == "struct<street: string, zip: int32>"
    assert change(table, [Adopted(("address", "geo"))]) == contract
    table.close()


def test_one_call_adopts_all_that_does_not_fit(table: FlusherTable) -> None:
    """What fits may be left, and other changes may be made in the same call."""
    embed(table)
    table.dataset.add_columns(pa.schema([("other", pa.int8())]))
    rename(table, "s", "text")
    table.dataset.drop_columns(["tags"])
    with pytest.raises(ContractMismatch, match=r"'s' is missing, and has become 'text'.*Nothing was changed"):
        change(table, [Adopted(("vector",)), Adopted(("tags",))])
    assert read_contract(table.store, "") == table.contract
    change(table, [Adopted(("tags",)), Adopted(("s",)), Added(("note",), pa.string())])
    assert [c.name for c in read_contract(table.store, "").columns] == ["region", "id", "a", "text", "address", "note"]
    assert LanceTable(table.uri).newest().schema.names[-2:] == ["vector", "other"]
    table.close()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(3))
def test_a_command_that_dies_is_gone_on_with(table: FlusherTable, step: int, after: bool) -> None:
    def die() -> None:
        raise Killed

    embed(table)
    rename(table, "s", "text")
    table.dataset.drop_columns(["tags"])
    steps = Steps()
    (steps.after if after else steps.before)[step] = die
    with pytest.raises(Killed):
        change(table, ALL, steps)
    contract = change(table, ALL)
    assert contract.version == 2
    assert [*shown(table)] == ["region", "id", "a", "text", "address", "vector"]
    table.close()


@pytest.mark.parametrize("step", range(3))
def test_another_program_comes_between(table: FlusherTable, step: int) -> None:
    """Between two steps it drops what is being adopted, and renames another column.  While a change is unfinished
    names do not count, so the command gives that column its own name again."""

    def meddle() -> None:
        table.dataset.drop_columns(["vector"])
        rename(table, "s", "text")

    embed(table)
    steps = Steps()
    steps.before[step] = meddle
    if step:
        with pytest.raises(ContractMismatch, match="'vector' is missing") as error:
            change(table, ALL, steps)
        assert "repair restored" not in str(error.value)
    else:
        change(table, ALL, steps)
    change(table, ALL)
    assert [*shown(table)] == ["region", "id", "a", "text" if step == 0 else "s", "tags", "address"]
    table.close()


def test_an_id_that_came_back_is_not_adopted(table: FlusherTable) -> None:
    change(table, [Added(("n",), pa.int64())])
    change(table, [Dropped(("n",))])
    table.dataset.add_columns(pa.schema([("theirs", pa.int64()), ("more", pa.int64())]))
    with pytest.raises(
        InvalidInput, match=r"'theirs'.*the id of a field that the contract had before.*column of lancewal"
    ):
        change(table, ALL)
    change(table, [Adopted(("more",))])
    assert "theirs" not in [c.name for c in read_contract(table.store, "").columns]
    table.close()


def test_a_column_from_before_an_own_one_is_adopted(table: FlusherTable) -> None:
    embed(table)
    change(table, [Added(("n",), pa.int64()), Renamed(("s",), "text")])
    change(table, ALL)
    assert [*shown(table)] == ["region", "id", "a", "text", "tags", "address", "n", "vector"]
    table.close()


def add(type_: pa.DataType) -> Callable[[FlusherTable], None]:
    return lambda table: table.dataset.add_columns(pa.schema([("theirs", type_)]))


def retyped(table: FlusherTable) -> None:
    table.dataset.alter_columns({"path": "a", "data_type": pa.int32()})


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (lambda t: t.dataset.add_columns({"theirs": "7"}),
         r"'theirs' is not nullable.*alter_columns\(\{\"path\": \"theirs\", \"nullable\": True\}\)"),
        (add(pa.date64()), r"type date64\[ms\], which a contract cannot hold.*column of lancewal's own"),
        (add(pa.list_(pa.float16(), 4)), "which a contract cannot hold"),
        (add(pa.struct([pa.field("x", pa.int8(), nullable=False)])), "'theirs.x' is not nullable"),
        (lambda t: add_blobs(t.dataset, "new, 2.2"), "'blob': it is a blob column"),
        (lambda t: rename(t, "id", "key"), r"primary key, 'id'. Rename it back: .*\"path\": \"key\", \"name\": \"id\""),
        (lambda t: t.dataset.drop_columns(["id"]), "'id': it is a column of the primary key. Restore the version right"),
        (retyped, "'a': it was given another type.*Restore"),
        (lambda t: t.dataset.add_columns(pa.schema([("_present", pa.int8())])), "'_present' is reserved"),
        (lambda t: t.dataset.add_columns(pa.schema([("A", pa.int8())])), "the name 'A' is taken, by 'a'"),
    ],
    ids=["not null", "type", "vector type", "member not null", "blob", "key renamed", "key dropped", "retyped", "odd name",
         "case"],
)  # fmt: skip
def test_what_cannot_be_adopted_is_named(table: FlusherTable, act: Callable[[FlusherTable], None], named: str) -> None:
    act(table)
    versions = len(table.dataset.versions())
    with pytest.raises(InvalidInput, match=named) as error:
        change(table, ALL)
    assert str(error.value).endswith("Nothing was changed")
    assert len(table.dataset.versions()) == versions
    assert read_contract(table.store, "") == table.contract
    table.close()


def test_the_ways_out_of_a_retyped_and_a_not_nullable_column(table: FlusherTable) -> None:
    retyped(table)
    rename(table, "a", "a2")
    table.dataset.add_columns({"theirs": "7"})
    table.dataset.alter_columns({"path": "theirs", "nullable": True})
    change(table, ALL)
    assert [*shown(table)] == ["region", "id", "s", "tags", "address", "a2", "theirs"]
    table.close()


def test_a_name_that_nobody_has_touched_is_refused(table: FlusherTable) -> None:
    with pytest.raises(InvalidInput, match="'nope': other programs have neither added, renamed nor dropped it"):
        change(table, [Adopted(("nope",))])
    assert change(table, ALL) == table.contract
    table.close()


def test_more_columns_than_the_contract_allows_are_refused(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path, columns_max=6)
    table.dataset.add_columns(pa.schema([("x", pa.int8()), ("y", pa.int8())]))
    with pytest.raises(InvalidInput, match=r"would make 7, more than table.columns_max \(6\)"):
        change(table, ALL)
    change(table, [Adopted(("y",))])
    table.close()


@pytest.mark.parametrize(
    "type_",
    [pa.map_(pa.string(), pa.struct([("x", pa.int8())])), pa.uuid(), pa.time64("us"), pa.large_string(), pa.binary(3)],
    ids=str,
)
def test_a_column_of_a_later_type_is_adopted(table: FlusherTable, type_: pa.DataType) -> None:
    add(type_)(table)
    change(table, ALL)
    found = read_contract(table.store, "")
    column = next(c for c in found.columns if c.name == "theirs")
    assert found.rows.columns.field("theirs").type == type_
    assert column.field_ids == LanceTable(table.uri).newest().field_ids["theirs"]


@pytest.mark.parametrize(
    "type_",
    [pa.large_list(pa.int8()), pa.map_(pa.string(), pa.int8()), pa.list_(pa.struct([("x", pa.int8())]), 2)],
    ids=["large list", "map", "list of structs"],
)
def test_columns_of_other_kinds_stay_where_columns_change(table: FlusherTable, type_: pa.DataType) -> None:
    add(type_)(table)
    ids = LanceTable(table.uri).newest().field_ids["theirs"]
    change(table, [Added(("n",), pa.int64()), Dropped(("tags",))])
    assert LanceTable(table.uri).newest().field_ids["theirs"] == ids
    assert table.dataset.schema.field("theirs").type == type_
    table.close()
