"""The benchmark of changed columns measures what it says, on a small table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import columns
from benchmarks.keyed_rows import Base
from benchmarks.report import ROWS as PAGE
from lancewal_core.rows.fold import fold
from lancewal_core.rows.projection import rows_as

ROWS = 20_000


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return Base(tmp_path_factory.mktemp("base"), ROWS)


def test_tables_are_changed_and_hold_the_model(base: Base, tmp_path: Path) -> None:
    figures = columns._widened(base, tmp_path) | columns._patched(base, tmp_path)
    assert figures["widen_bytes_ratio"] > 1
    assert figures["patched_bytes_ratio"] > 0
    assert figures.keys() < {key for _, key, _, _ in PAGE["columns"]}


def test_both_sides_fold_the_same_operations(base: Base, tmp_path: Path) -> None:
    schemas = columns._three_contracts(base, tmp_path)
    assert len({schema.signature for schema in schemas}) == 3
    newest, shares = schemas[-1], columns.SHARES["mixed"]
    one, three = (
        fold([rows_as(columns._operations(rows, 1, shares), rows, newest, lambda: "")], newest)
        for rows in (newest, schemas[0])
    )
    for part in ("rows", "gone", "partials"):
        assert 0 < getattr(one, part).num_rows == getattr(three, part).num_rows
    assert one.rows["a"].equals(three.rows["a"])
