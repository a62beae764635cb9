"""Open widenings name the fields that get a wider type, at any depth."""

from __future__ import annotations

import pytest

from lancewal_core.process.status.widenings import OpenWidening, open_widenings
from lancewal_core.rows.column_types import parse_type
from lancewal_core.table.columns.changes import Added, ContractChange, Widened
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.contract import Column, Contract

COLUMNS = {
    "id": "int64",
    "fare": "int32",
    "v": "fixed_size_list<float32>[2]",
    "lines": "list<struct<price: float32, at: struct<n: int16, t: string>>>",
}


def contract() -> Contract:
    columns, following = [], 0
    for name, text in COLUMNS.items():
        count = 1 + text.count("<struct") + text.count(":") if "struct" in text else 1
        columns.append(Column(name=name, type=text, field_ids=tuple(range(following, following + count))))
        following += count
    return Contract(
        table_uuid="u",
        topic="t",
        topic_id="i",
        partitions=1,
        primary_key=("id",),
        region_key=("id",),
        start=(0,),
        columns=tuple(columns),
    )


def asked(before: Contract, at_ms: int, *changes: ContractChange) -> Contract:
    return changed(before, changes, Surroundings(50, {}, now_ms=at_ms), "abc")


def test_fields_are_named_by_their_paths_with_the_time_of_the_first_command() -> None:
    assert open_widenings(contract()) == ()
    first = asked(contract(), 1000, Widened(("lines", "at", "n"), parse_type("int64")))
    assert open_widenings(first) == (OpenWidening("lines.at.n", "int16", "int64", 1000),)
    wider = [Widened(("lines", "price"), parse_type("float64")), Widened(("fare",), parse_type("int64"))]
    second = asked(first, 2000, *wider, Widened(("v",), parse_type("fixed_size_list<float64>[2]")))
    assert open_widenings(second, "held") == (
        OpenWidening("fare", "int32", "int64", 2000, "held"),
        OpenWidening("v", "fixed_size_list<float32>[2]", "fixed_size_list<float64>[2]", 2000, "held"),
        OpenWidening("lines.price", "float32", "float64", 1000, "held"),
        OpenWidening("lines.at.n", "int16", "int64", 1000, "held"),
    )


@pytest.mark.parametrize("change", [Added(("note",), parse_type("string"))])
def test_another_change_keeps_the_time(change: ContractChange) -> None:
    first = asked(contract(), 1000, Widened(("fare",), parse_type("int64")))
    assert open_widenings(asked(first, 2000, change)) == open_widenings(first)
