"""Every change between states of different contracts: all rows have the columns of the later one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from lancewal_reader.table import open_table
from tests.columns.three_contracts import NAMES, Moment, ThreeContracts
from tests.reader.changes.test_all import applied, feed
from tests.support.pipeline import Key, Row


@pytest.fixture(scope="module", params=[True, False], ids=["flushed", "log alone"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeContracts]:
    table = ThreeContracts(tmp_path_factory.mktemp("three"), flushing=request.param, history_window_s=24 * 3600)
    table.fill()
    yield table
    table.close()


def columns_at(moment: Moment) -> int:
    return NAMES.index(moment.names)


def as_of(rows: dict[Key, Row], one: int, other: int) -> dict[Key, Row]:
    """Rows of a contract in the columns of a later one: renamed, and null where a column was added since."""

    def column(row: Row, name: str) -> object:
        if name == "old" and one < 2 <= other:
            return None  # another column of the same name
        return row.get("text" if name == "words" and one == 0 else name)

    return {key: {name: column(row, name) for name in NAMES[other]} for key, row in rows.items()}


def check_all(made: ThreeContracts) -> None:
    table = open_table(made.uri)
    for start, end in combinations(made.moments, 2):
        found = feed(table, str(start.points["receipt"]), str(end.points["receipt"]))
        before = as_of(start.rows, columns_at(start), columns_at(end))
        assert applied(before, found) == end.rows
        records = sum(b - a for a, b in zip(start.ends, end.ends, strict=True))
        assert len([one for one in found if one.source == "record"]) == records  # none deletes what is not there


def test_changes_across_contracts(made: ThreeContracts) -> None:
    check_all(made)


def test_changes_across_contracts_when_all_is_merged(made: ThreeContracts, tmp_path: Path) -> None:
    copied = made.copied(tmp_path)
    try:
        copied.merge_all()
        check_all(copied)
    finally:
        copied.close()
