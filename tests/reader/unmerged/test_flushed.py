"""What was read of a flush is what the fragment has that a merge adopts its file as."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lancewal_core.names.ids import Generation
from lancewal_core.rows.fold import Folded, partial_schema
from lancewal_core.table.lance.table import LanceTable
from lancewal_reader.table import open_table
from lancewal_reader.unmerged.flushed import FlushCache, RowsOfFile
from tests.support.flusher_tables import OPEN_ROWS, FlusherTable, delete, upserts


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_file_of_a_flush_is_known_once_it_is_adopted(tmp_path: Path, partitions: int) -> None:
    made = FlusherTable(tmp_path, partitions)
    made.generations({number: upserts(range(5 * number, 5 * number + 7), a=number) for number in range(partitions)})
    opened = open_table(made.uri)
    opened.to_arrow(["a", "s"])
    flushes = opened._reads.context.flushes
    made.generation(0, [delete(2)])  # of a row that is not merged yet: the fragment has it as a deleted one
    made.round(OPEN_ROWS)
    pinned = LanceTable(made.uri).newest()
    (fragment,) = pinned.fragments()
    assert (fragment.physical_rows, fragment.deleted_rows) == (7 * partitions, 1)
    (file,) = fragment.files
    columns = {name: (name, *rest) for name, *rest in opened.contract.rows.signature}
    for column in ("a", "s"):
        right = pa.chunked_array([batch[column] for batch in pinned.all_rows(fragment.fragment_id, [column])])
        known = flushes.of_file(file, fragment.physical_rows, columns[column])
        assert known is not None
        assert known.to_pylist() == right.to_pylist()
    assert flushes.of_file(file, fragment.physical_rows, columns["tags"]) is None
    assert flushes.of_file(file, fragment.physical_rows + 1, columns["a"]) is None
    assert flushes.of_file("another.lance", fragment.physical_rows, columns["a"]) is None
    made.close()


def test_a_file_of_which_a_part_was_not_read_is_not_known(tmp_path: Path) -> None:
    made = FlusherTable(tmp_path, 3)
    made.generations({number: upserts(range(7)) for number in range(3)})
    opened = open_table(made.uri)
    opened.to_arrow(["a"])
    read = opened._reads.context.flushes
    (file,) = {place.file for flushed in read._found.values() for place in flushed.places}
    (column,) = (one for one in opened.contract.rows.signature if one[0] == "a")
    assert read.of_file(file, 21, column) is not None
    assert read.of_file(file, 21, ("a", pa.int64(), (99,))) is None
    for left_out in range(3):
        others = FlushCache(1 << 20)
        for at, ((part, columns), flushed) in enumerate(read._found.items()):
            if at != left_out:
                others.add(part, columns, flushed.folded, flushed.places)
        assert others.of_file(file, 21, column) is None
    made.close()


def test_rows_of_one_part_may_lie_in_several_files(tmp_path: Path) -> None:
    made = FlusherTable(tmp_path, 1)
    schema, flushes = made.contract.rows, FlushCache(1 << 20)
    rows = pa.table({"a": pa.array(range(10))})
    folded = Folded(rows, schema.key.empty_table(), partial_schema(schema).empty_table())
    places = [RowsOfFile("one", range(3, 5)), RowsOfFile("two", range(6)), RowsOfFile("three", range(2))]
    flushes.add(("flush", made.regions[0], Generation(1)), (("a", pa.int64()),), folded, places)
    found = [flushes.of_file(file, rows, ("a", pa.int64())) for file, rows in (("one", 5), ("two", 6), ("three", 2))]
    assert [None if column is None else column.to_pylist() for column in found] == [None, [2, 3, 4, 5, 6, 7], [8, 9]]
    made.close()
