"""A peer for tests: a dict of rows by id, in the process that a real peer would be."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lance
import pyarrow.parquet as pq

FAULT = "DICT_PEER_FAULT"
CLOSED = "closed"


class DictPeer:
    """``DICT_PEER_FAULT``: ``start`` fails at the start, ``lose`` loses a row of each upsert."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        print("engines talk a lot, also on stdout")
        if os.environ.get(FAULT) == "start":
            raise RuntimeError("no such package")
        self._rows: dict[int, dict[str, Any]] = {}
        self._given: list[dict[str, Any]] = []

    def pids(self) -> list[int]:
        return []

    def close(self) -> None:
        (self._folder / CLOSED).touch()

    def create(self, rows: Path) -> None:
        self.give(rows)
        self._upsert(self._given)

    def give(self, rows: Path) -> None:
        self._given = pq.read_table(rows).to_pylist()

    def upsert(self) -> None:
        self._upsert(self._given[1:] if os.environ.get(FAULT) == "lose" else self._given)

    def aggregate(self) -> tuple[int, int, float]:
        rows = self._rows.values()
        return len(rows), sum(row["a"] for row in rows), sum(row["b"] for row in rows)

    def scan(self) -> int:
        return len(self._rows)

    def aggregate_of(self, place: Path) -> tuple[int, int, float]:
        rows = lance.dataset(str(place)).to_table(columns=["a", "b"])
        return rows.num_rows, sum(rows["a"].to_pylist()), sum(rows["b"].to_pylist())

    def scan_of(self, place: Path) -> int:
        return int(lance.dataset(str(place)).to_table().num_rows)

    def compact(self) -> None:
        raise NotImplementedError("a dict")

    def _upsert(self, rows: list[dict[str, Any]]) -> None:
        self._rows.update({row["id"]: row for row in rows})


def open_peer(folder: Path) -> DictPeer:
    return DictPeer(folder)
