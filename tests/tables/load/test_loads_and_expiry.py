"""Loads and expiry under inputs and restores that were not thought of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidSchema
from lancewal_flusher.upkeep.expiry import Expired, OldestTimes
from lancewal_tables.load.files import find_files
from lancewal_tables.load.whole import LoadAsked, load
from tests.flusher.upkeep.test_expiry import NOW, drop_expired, expire, made, row
from tests.support.flusher_tables import COLUMNS, FlusherTable
from tests.support.repairs import command
from tests.support.scripted import ManualClock


def test_rows_that_a_restore_brings_back_expire_again(tmp_path: Path) -> None:
    clock = ManualClock(epoch_ms=int(NOW.timestamp() * 1000))
    table = made(tmp_path)
    table.generation(0, [row(1, 30), row(2, 1)])
    table.round()
    before = table.dataset.version
    oldest = OldestTimes()
    assert isinstance(expire(table, clock, oldest=oldest), Expired)
    assert expire(table, clock, oldest=oldest) is None
    earlier: Any = lance.dataset(table.uri, version=before)
    earlier.restore()
    pipeline: Any = SimpleNamespace(uri=table.uri)
    command(pipeline, "restored", "--rows-since", "drop")
    table.check()
    drop_expired(table, clock)
    expire(table, clock, oldest=oldest)
    table.check()
    table.close()


def test_a_null_among_the_values_of_a_dictionary_is_a_null(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path)
    region = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["r0", None]))
    tags = pa.nulls(2, COLUMNS.field("tags").type)
    rows = pa.table({"region": region, "id": [1, 2], "a": [1, 2], "s": ["x", "y"], "tags": tags})
    file = tmp_path / "rows.arrow"
    with pa.ipc.new_file(str(file), rows.schema) as writer:
        writer.write_table(rows)
    with pytest.raises(InvalidSchema, match="'region' of the primary key is null in 1 row"):
        load(table.context(), find_files([str(file)], {}), LoadAsked("load"))
    assert table.rows() == []
    table.close()
