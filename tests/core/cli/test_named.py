"""PARTITION and RECORD, as commands take them."""

from __future__ import annotations

import pytest

from lancewal_core.cli.named import partition_named, record_named
from lancewal_core.errors import InvalidInput
from lancewal_core.table.contract import Column, Contract

CONTRACT = Contract(
    table_uuid="u", topic="shop.orders-2", topic_id="i", partitions=4, primary_key=("id",), region_key=("id",),
    start=(0,) * 4, columns=(Column(name="id", type="int64", field_ids=(0,)),),
)  # fmt: skip


@pytest.mark.parametrize(("text", "partition"), [("0", 0), ("3", 3), ("shop.orders-2-3", 3)])
def test_partitions(text: str, partition: int) -> None:
    assert partition_named(text, CONTRACT) == partition


@pytest.mark.parametrize(
    "text", ["", "x", "4", "-1", "shop.orders-2", "others-1", "shop.orders-2-4", "shop.orders-2/id/3", "٣"]
)
def test_what_names_no_partition_of_the_table(text: str) -> None:
    with pytest.raises(InvalidInput):
        partition_named(text, CONTRACT)


def test_a_record() -> None:
    assert record_named("shop.orders-2-3-1841", CONTRACT) == (3, 1841)


@pytest.mark.parametrize("text", ["", "1841", "3-1841", "others-3-1841", "shop.orders-2-4-0", "shop.orders-2-3"])
def test_what_names_no_record_of_the_table(text: str) -> None:
    with pytest.raises(InvalidInput):
        record_named(text, CONTRACT)
