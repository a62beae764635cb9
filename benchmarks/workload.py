"""The rows that the benchmarks use: seven columns, JSON values of about 150 bytes, keyed by a wide region key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

REGIONS = 100_000
SCHEMA = pa.schema(
    [
        pa.field("region", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("a", pa.int64()),
        ("b", pa.float64()),
        ("name", pa.string()),
        ("ts", pa.int64()),
        ("pad", pa.string()),
    ]
)
COLUMNS = {"region": "string", "id": "int64", "a": "int64", "b": "float64", "name": "string", "ts": "int64",
           "pad": "string"}  # fmt: skip
PRIMARY_KEY = ("region", "id")
REGION_KEY = ("region",)
_PAD = "0123456789abcdefghijklmnopqrstuv"


@dataclass(frozen=True, slots=True)
class Message:
    """One Kafka record."""

    key: bytes
    value: bytes
    op: str


def region_of(row_id: int) -> str:
    """A key lives in one region: the id decides it."""
    return f"region-{row_id * 2654435761 % REGIONS:05d}"


def _row(row_id: int, n: int) -> str:
    return (
        f'{{"region":"{region_of(row_id)}","id":{row_id},"a":{n * 7919 % 1_000_000_000},"b":{n * 0.25!r},'
        f'"name":"nm-{n % 1_000_000:09d}","ts":{1_700_000_000_000 + n},"pad":"{_PAD}{n % 100_000_000:08d}"}}'
    )


def upserts(count: int, keys: int, seed: int) -> Iterator[Message]:
    """Full rows of random keys."""
    ids = np.random.default_rng(seed).integers(0, keys, count).tolist()
    for n, row_id in enumerate(ids):
        yield Message(region_of(row_id).encode(), _row(row_id, n).encode(), "upsert")


def fresh_row(row_id: int, n: int, now_us: int) -> Message:
    """A full row that says by ``a`` which one it is, and by ``ts`` when it was produced."""
    region = region_of(row_id)
    value = f'{{"region":"{region}","id":{row_id},"a":{n},"b":0.5,"name":"fresh","ts":{now_us},"pad":"{n:040d}"}}'
    return Message(region.encode(), value.encode(), "upsert")


def mixed(count: int, keys: int, seed: int) -> Iterator[Message]:
    """70 % upserts, 25 % patches (every fifth sets a column to null), 5 % deletes."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, keys, count).tolist()
    for n, (row_id, kind) in enumerate(zip(ids, rng.random(count).tolist(), strict=True)):
        region = region_of(row_id)
        if kind < 0.7:
            yield Message(region.encode(), _row(row_id, n).encode(), "upsert")
        elif kind < 0.95:
            name = "null" if n % 5 == 0 else f'"nm-{n % 1_000_000:09d}"'
            value = f'{{"region":"{region}","id":{row_id},"a":{n},"name":{name},"ts":{1_700_000_000_000 + n}}}'
            yield Message(region.encode(), value.encode(), "patch")
        else:
            yield Message(region.encode(), json.dumps({"region": region, "id": row_id}).encode(), "delete")


def table_rows(ids: np.ndarray, n0: int) -> pa.Table:
    """The same kind of rows as Arrow, for a base table."""
    numbers = np.arange(n0, n0 + len(ids), dtype=np.int64)
    return pa.table(
        {
            "region": [region_of(i) for i in ids.tolist()],
            "id": ids.astype(np.int64),
            "a": numbers * 7919 % 1_000_000_000,
            "b": numbers * 0.25,
            "name": [f"nm-{n % 1_000_000:09d}" for n in numbers.tolist()],
            "ts": 1_700_000_000_000 + numbers,
            "pad": [f"{_PAD}{n % 100_000_000:08d}" for n in numbers.tolist()],
        },
        schema=SCHEMA,
    )
