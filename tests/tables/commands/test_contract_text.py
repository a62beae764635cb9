"""What ``table alter`` says of a change of terms."""

from __future__ import annotations

from lancewal_core.table.columns.changes import Dropped, Forgotten
from lancewal_core.table.columns.next_contract import Surroundings, changed
from lancewal_core.table.contract import Contract
from lancewal_tables.commands.contract_text import changes_text
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
