"""JSON of Kafka Connect with schemas on every way of rows: WAL, flush and merge, with a new column and other records between.

The oracle is a dict."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.table.contract import read_contract
from lancewal_reader.table import open_table
from tests.support.pipeline import SMALL, Pipeline, by_key

DECIMAL = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
FIELDS: list[dict[str, Any]] = [
    {"field": "region", "type": "string"},
    {"field": "id", "type": "int64"},
    {"field": "a", "type": "int32", "optional": True},
    {"field": "s", "type": "string", "optional": True},
]
PRICE: dict[str, Any] = {"field": "price", "type": "bytes", "optional": True, **DECIMAL}


COLUMNS = [one["field"] for one in [*FIELDS, PRICE]]


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(
        tmp_path,
        SMALL,
        partitions=2,
        seal_rows=40,
        format=2,
        value_format="connect-json",
        value_record="shop.Order",
        on_other_record="ignore",
        on_unknown_column="add",
    )
    yield made
    made.close()


def in_base64(price: Decimal) -> str:
    unscaled = int(price.scaleb(2))
    return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()


def send(pipeline: Pipeline, op: str, region: str, id: int, row: dict[str, Any], name: str = "shop.Order") -> None:
    payload = {"region": region, "id": id, **row}
    if payload.get("price") is not None:
        payload["price"] = in_base64(payload["price"])
    fields = [one for one in [*FIELDS, PRICE] if one["field"] in payload]
    schema = {"type": "struct", "name": name, "fields": fields, "optional": False}
    key = encode_region_key(region)
    value = json.dumps({"schema": schema, "payload": payload}).encode()
    pipeline._messages[partition_of(key, len(pipeline._messages))].append((key, value, op))


def test_rows_are_equal_unmerged_and_merged(pipeline: Pipeline) -> None:
    oracle: dict[tuple[str, int], dict[str, Any]] = {}
    rng = random.Random(7)
    for step in range(300):
        region, id = f"r{rng.randrange(5)}", rng.randrange(40)
        row: dict[str, Any] = {"a": rng.choice([None, step]), "s": rng.choice([None, f"é{step}"])}
        if step > 150:
            row["price"] = rng.choice([None, Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-2)])
        op = rng.choice(["upsert", "upsert", "patch", "delete", "other"])
        if op == "other":
            send(pipeline, "upsert", region, id, {"a": 1}, "shop.Customer")
            continue
        if op == "patch":
            row = dict(rng.sample(sorted(row.items()), 1))
        send(pipeline, op, region, id, row)
        key = region, id
        nulls = {**dict.fromkeys(COLUMNS), "region": region, "id": id}
        if op == "delete":
            oracle.pop(key, None)
        else:
            oracle[key] = {**(oracle.get(key, nulls) if op == "patch" else nulls), **row}
        if step % 100 == 50:
            pipeline.ingest()
    pipeline.ingest()

    def rows() -> dict[tuple[str, int], dict[str, Any]]:
        return {key: dict(row) for key, row in by_key(open_table(pipeline.uri).to_arrow()).items()}

    assert {key: {name: row[name] for name in COLUMNS} for key, row in rows().items()} == oracle
    pipeline.contract = read_contract(pipeline.store, pipeline.uri)
    pipeline.merge_all()
    assert {key: {name: row[name] for name in COLUMNS} for key, row in rows().items()} == oracle
    assert open_table(pipeline.uri).schema.field("price").type.scale == 2
