"""What ``table alter`` says of a change of terms."""

from __future__ import annotations

import pyarrow as pa

from lancewal_core.settings.declared import ColumnSource
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
