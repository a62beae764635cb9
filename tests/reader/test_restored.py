"""Reads after a user has restored the table: eventual ones go on and claim no position, strong ones stop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest

from lancewal_core.errors import TableRestored
from lancewal_core.names.ids import Position
from lancewal_reader.point.receipt import receipt_of
from lancewal_reader.spark.source import pin_read
from lancewal_reader.table import open_table
from tests.support.pipeline import Key, Pipeline, Row, by_key
from tests.support.repairs import command


class Restored:
    """Two states in the table, a third durable; ``restore`` brings the first back."""

    def __init__(self, folder: Path) -> None:
        self.pipeline = pipeline = Pipeline(folder, partitions=2, seed=7)
        pipeline.produce(150)
        pipeline.merge_all()
        self.first = pipeline.table.newest().version
        self.rows: dict[Key, Row] = dict(pipeline.oracle)
        pipeline.produce(200)
        pipeline.merge_all()
        pipeline.produce(50)
        pipeline.ingest()

    def restore(self) -> None:
        earlier: Any = lance.dataset(self.pipeline.uri, version=self.first)
        earlier.restore()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Restored]:
    made = Restored(tmp_path)
    yield made
    made.pipeline.close()


def test_eventual_reads_serve_the_restored_version(world: Restored) -> None:
    uri = world.pipeline.uri
    seen = open_table(uri)
    assert receipt_of(seen.scan(consistency="eventual").schema).positions
    world.restore()
    for table in (seen, open_table(uri)):
        for _ in range(2):
            read = table.scan(consistency="eventual")
            receipt = receipt_of(read.schema)
            assert (receipt.version, receipt.positions) == (lance.dataset(uri).version, {})
            assert by_key(read.to_arrow()) == world.rows
        with pytest.raises(TableRestored, match="lancewal repair restored"):
            table.to_arrow()


def test_its_receipt_gives_its_rows_again(world: Restored) -> None:
    """Also where somebody has written on top, and after a person has decided."""
    pipeline = world.pipeline
    world.restore()
    table = open_table(pipeline.uri)
    receipt = receipt_of(table.scan(consistency="eventual").schema)
    row = {"region": "by hand", "id": 1, "a": 5, "s": None}
    pipeline.append_by_hand([row])
    found = by_key(table.to_arrow(consistency="eventual"))
    assert found == {**world.rows, ("by hand", 1): row}
    assert by_key(table.to_arrow(at=receipt)) == world.rows
    again = receipt_of(table.scan(at=receipt).schema)
    assert again == receipt
    with pytest.raises(TableRestored):  # what claims a position cannot be proven
        table.to_arrow(at=replace(receipt, positions={pipeline.contract.regions[0]: Position(3)}))
    command(pipeline, "restored", "--rows-since", "drop")
    assert by_key(table.to_arrow(at=receipt)) == world.rows
    assert receipt_of(table.scan(consistency="eventual").schema).positions


@pytest.mark.parametrize("choice", ["drop", "replay"])
def test_a_decision_gives_positions_again(world: Restored, choice: str) -> None:
    pipeline = world.pipeline
    world.restore()
    table = open_table(pipeline.uri)
    table.to_arrow(consistency="eventual")
    command(pipeline, "restored", "--rows-since", choice)
    read = table.scan(consistency="eventual")
    assert len(receipt_of(read.schema).positions) == 2
    assert by_key(read.to_arrow()) == world.rows
    if choice == "replay":
        assert by_key(table.to_arrow()) == pipeline.oracle


def test_the_spark_source_pins_the_restored_version(world: Restored) -> None:
    world.restore()
    read = pin_read({"table": world.pipeline.uri, "consistency": "eventual"})
    assert (read.receipt.version, read.receipt.positions) == (lance.dataset(world.pipeline.uri).version, {})
    with pytest.raises(TableRestored):
        pin_read({"table": world.pipeline.uri})
