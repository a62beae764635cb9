"""What a client hands out in one list is divided by partition, each in the order it came."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from lancewal_kafka.records import by_partition


@pytest.mark.parametrize("run", [0, 1, 3, 50])
def test_each_partition_has_its_own_in_order(run: int) -> None:
    rng = random.Random(run)
    at = dict.fromkeys(range(4), 10)
    messages, expected = [], dict[int, list[tuple[int, bytes, int]]]()
    for _ in range(20 if run else 0):
        partition = rng.randrange(4)
        for _ in range(rng.randrange(1, run + 1)):
            offset, at[partition] = at[partition], at[partition] + 1
            value = f"{partition}-{offset}".encode()
            messages.append(
                Message(topic="t", partition=partition, offset=offset, key=b"k", value=value,
                        timestamp=(TIMESTAMP_CREATE_TIME, 7 * offset))
            )  # fmt: skip
            expected.setdefault(partition, []).append((offset, value, 7 * offset))
    found = by_partition(messages)
    assert {p: list(zip(r.offsets, r.values, r.timestamps, strict=True)) for p, r in found.items()} == expected
    assert all(len(r.keys) == len(r.headers) == len(r) for r in found.values())
