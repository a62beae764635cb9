"""Rows that a user appends to the table by hand, and what a read may show of them.

Rows with keys of the user's own stay as they are.  Of a key that Kafka writes too, a row of the user's shows beside
Kafka's row until a merge of that key has landed above it and is finished; then Kafka's row alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lancewal_core.names.ids import Region
from tests.simulation import oracle
from tests.simulation.checker import require, rows_of
from tests.simulation.memory_kafka import MemoryTopic
from tests.simulation.settings import USER_KEYS
from tests.twins.memory_table import MemoryDataset

_MARK = "by hand"


@dataclass(slots=True)
class ByHand:
    """What was appended so far, with the table version that it made."""

    own: list[tuple[int, int]] = field(default_factory=list)
    """(table version, key)."""
    shared: list[tuple[int, int]] = field(default_factory=list)
    """The same, of keys that Kafka writes too."""

    def appended(self, version: int, keys: Iterable[int]) -> None:
        for k in keys:
            (self.own if k >= USER_KEYS else self.shared).append((version, k))

    def own_rows(self, version: int) -> dict[int, oracle.Values]:
        """Rows of the user's own keys at a table version."""
        return {k: {"a": _MARK, "b": k} for landed, k in self.own if landed <= version}

    def shows(self, key: int, values: oracle.Values) -> bool:
        """Return whether a row is one of the user's with a key that Kafka writes too."""
        return values["a"] == _MARK and key < USER_KEYS

    def split(self, batches: Iterable[pa.RecordBatch], version: int) -> tuple[dict[int, oracle.Values], Counter[int]]:
        """Rows by key, without the user's rows of shared keys; how many of those there are of each.

        A key that is there twice otherwise, or more often than it was appended, is a violation.
        """
        allowed = Counter(k for landed, k in self.shared if landed <= version)
        seen: Counter[int] = Counter()
        others = []
        for batch in batches:
            kept = []
            for k, a in zip(batch["k"].to_pylist(), batch["a"].to_pylist(), strict=True):
                mine = a == _MARK and k < USER_KEYS
                seen[k] += mine
                kept.append(not mine)
            others.append(batch.filter(pa.array(kept, pa.bool_())))
        require(seen <= allowed, "rows of a user show more often than they were appended:", seen, allowed)
        return rows_of(others), +seen

    def left_in_the_end(self, dataset: MemoryDataset, topic: MemoryTopic, regions: Iterable[Region]) -> Counter[int]:
        """The user's rows of shared keys that must be there once every merge is finished: those that none has passed."""
        merged_at: dict[int, int] = {}
        before: Mapping[str, int] = {}
        named = {region.name: region for region in regions}
        for version in dataset.landed:
            text = version.transaction.properties.get("lancewal.watermarks")
            if text is None:
                continue
            now = {name: mark["next"] for name, mark in json.loads(text).items()}
            for name, position in now.items():
                records = topic.partitions[named[name].partition].between(before.get(name, 0), position)
                merged_at.update({r.k: version.number for r in records if r.op is not None})
            before = now
        return Counter(k for landed, k in self.shared if merged_at.get(k, 0) < landed)
