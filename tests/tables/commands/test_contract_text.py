"""What ``table alter`` says of a change of terms."""

from __future__ import annotations

from typing import get_args

import pyarrow as pa
import pytest

from lancewal_core.settings.declared import ColumnSource
from lancewal_core.settings.sections import TableSettings
from lancewal_core.table.columns.changes import Added, Dropped, Forgotten, Renamed
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.contract import Contract
from lancewal_tables.commands.contract_text import changes_text, contract_text, moved_names
from tests.golden.json_formats import CONTRACT


def test_a_term_that_ends_is_shown() -> None:
    def after(before: Contract, *names: str, forget: bool = False) -> Contract:
        changes = [(Forgotten if forget else Dropped)((name,)) for name in names]
        return changed(before, changes, Surroundings(7, {}), "abc")

    dropped = after(CONTRACT, "price", "vector")
    shown = changes_text(CONTRACT, dropped).splitlines()
    assert [line.split() for line in shown if "passed over" in line] == [
        ["names", "passed", "over", "none", "->", "price,", "vector"]
    ]
    once = after(dropped, "price", forget=True)
    shown = changes_text(dropped, once).splitlines()
    assert [line.split() for line in shown if "passed over" in line] == [
        ["names", "passed", "over", "price,", "vector", "->", "vector"]
    ]
    shown = changes_text(once, after(once, "vector", forget=True)).splitlines()
    assert [line.split() for line in shown if "passed over" in line] == [
        ["names", "passed", "over", "vector", "->", "none"]
    ]


POLICIES = [term for term in TableSettings.model_fields if term.startswith("on_") or term == "snapshot_rows"]


@pytest.mark.parametrize("term", POLICIES)
def test_each_policy_of_the_settings_is_shown(term: str) -> None:
    """A table of which records can meet every policy: no term is left out, and each change of one is shown."""
    terms = {"value_format": "avro", "value_record": "shop.Order", "envelope": "debezium"}
    for policy in get_args(TableSettings.model_fields[term].annotation):
        before = CONTRACT.model_copy(update={**terms, term: "another"})
        changed_lines = changes_text(before, before.model_copy(update={term: policy})).splitlines()
        name = term.removeprefix("on_").replace("_", " ")
        assert [line.split() for line in changed_lines] == [[*name.split(), "another", "->", policy]]


def test_policies_that_no_record_can_meet_are_left_out() -> None:
    shown = {line.split("  ")[0] for line in contract_text(CONTRACT).splitlines()}
    assert shown.isdisjoint({"other record", "unknown schema", "truncate", "unavailable value", "snapshot rows"})
    assert shown >= {"bad record", "wrong format", "misrouted", "unknown column"}
    keyed = CONTRACT.model_copy(update={"key_format": "protobuf"})
    assert "unknown schema" in {line.split("  ")[0] for line in contract_text(keyed).splitlines()}


def test_names_of_members_have_their_path() -> None:
    item = pa.struct([("price", pa.int64()), ("unit", pa.string()), ("size", pa.int32())])
    facts = Surroundings(7, {})
    added = changed(CONTRACT, [Added(("lines",), pa.list_(item))], facts, "abc")
    renamed = changed(added, [Renamed(("lines", "price"), "cost"), Dropped(("lines", "unit"))], facts, "def")
    shown = contract_text(renamed).splitlines()
    assert [line.split(None, 3)[-1] for line in shown if "passed over" in line] == ["lines.unit"]
    lines = next(line for line in shown if line.startswith("lines "))
    assert lines.endswith("list<struct<cost: int64, size: int32>>, lines.cost also known as price")
    gone = changed(renamed, [Dropped(("lines",))], facts, "abe")
    assert [line.split(None, 3)[-1] for line in contract_text(gone).splitlines() if "passed over" in line] == ["lines"]


def test_a_column_that_records_do_not_name_moves_no_name() -> None:
    """A column of the record's metadata has the name that another column had: records with the name mean the other one."""
    facts = Surroundings(7, {})
    renamed = changed(CONTRACT, [Renamed(("price",), "cost")], facts, "abc")
    filled = Added(("price",), pa.int64(), source=ColumnSource(metadata="kafka.offset"))
    assert moved_names(renamed, changed(renamed, [filled], facts, "abd")) == []
    own = changed(renamed, [Added(("price",), pa.int64())], facts, "abd")
    assert moved_names(renamed, own) == [
        "the name 'price' in a record now means a field that was added; before, the field that is now called 'cost'"
    ]
