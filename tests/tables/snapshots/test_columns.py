"""Named snapshots of points whose columns are not those of the table version that they begin at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_reader.point.receipt import Receipt
from lancewal_reader.table import open_table, reads_of
from lancewal_tables.snapshots.make import make_snapshot
from tests.reader.test_columns_of_contracts import _first, _second, _third, by_key, check_reads, model
from tests.support.flusher_tables import FlusherTable, patch, upserts


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    yield made
    made.close()


def snapshot(table: FlusherTable, at: Receipt | None = None) -> pa.Table:
    """Return the rows of a new snapshot, as plain Lance shows them."""
    context = table.context()
    make_snapshot(context, reads_of(context, table.uri), "s", at)
    return lance.dataset(table.uri).checkout_version(("s", None)).to_table()


def test_it_has_the_columns_of_its_newest_record(table: FlusherTable) -> None:
    _first(table, True)
    table.round()
    version = table.dataset.version
    _second(table, True)
    _third(table, True)
    at, expected = replace(open_table(table.uri).receipt(), version=version), model(table)
    check_reads(open_table(table.uri), expected, at=at)
    assert by_key(snapshot(table, at)) == expected
    table.change_columns({"c": "z"})
    check_reads(open_table(table.uri), expected, at="snapshot:s")


def test_patched_rows_keep_the_values_of_another_program(table: FlusherTable) -> None:
    table.generation(0, upserts(range(4)))
    table.round()
    table.dataset.add_columns({"more": "concat('m', cast(id as string))"})
    table.generation(0, [patch(1, a=10)])
    assert by_key(snapshot(table)) == [{**row, "more": f"m{row['id']}"} for row in model(table)]
