"""Rows for the merge benchmarks, and the model that says what a table must hold after them.

A base of N rows has the even ids below 2 N.  A batch of upserts is 90 % updates of base ids and 10 % inserts of odd ids
that were never used before, both uniform over the same range, with no id twice.  ``b`` is a multiple of 0.25, so that its
sum is exact in a double.  A row is about 166 bytes as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("region", pa.string()),
        ("a", pa.int64()),
        ("b", pa.float64()),
        ("name", pa.string()),
        ("ts", pa.int64()),
        ("pad", pa.string()),
    ]
)
KEY = "id"
ROWS_PER_FRAGMENT = 250_000
_CHUNK = 1_000_000
_LETTERS = np.frombuffer(b"0123456789abcdefghijklmnopqrstuv", np.uint8)
_REGIONS = pa.array([f"region-{i:02d}" for i in range(64)])
_BASE_TIME = 1_700_000_000_000
_UPSERT_TIME = 1_700_100_000_000

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sums:
    """What a table is compared by: exact."""

    rows: int
    a: int
    b: float


class Model:
    """The rows by id: ``a``, ``b`` in quarters, and whether there is one."""

    def __init__(
        self, a: npt.NDArray[np.int32], quarters: npt.NDArray[np.int32], present: npt.NDArray[np.bool_]
    ) -> None:
        self._a, self._quarters, self._present = a, quarters, present
        self._rows = int(present.sum())
        self._sum_a = int(a.sum(dtype=np.int64))
        self._sum_quarters = int(quarters.sum(dtype=np.int64))

    @property
    def sums(self) -> Sums:
        return Sums(self._rows, self._sum_a, self._sum_quarters * 0.25)

    def patch(self, rows: pa.Table) -> None:
        """Other values of ``a`` for ids that are there."""
        ids, a = rows[KEY].to_numpy(), rows["a"].to_numpy()
        self._sum_a += int(a.sum()) - int(self._a[ids].sum(dtype=np.int64))
        self._a[ids] = a

    def copy(self) -> Model:
        return Model(self._a.copy(), self._quarters.copy(), self._present.copy())

    def absent(self, ids: Ids) -> Ids:
        """Those that are no row yet."""
        return ids[~self._present[ids]]

    def apply(self, rows: pa.Table) -> None:
        """Upsert; no id twice."""
        ids = rows[KEY].to_numpy()
        a, quarters = rows["a"].to_numpy(), (rows["b"].to_numpy() * 4).astype(np.int64)
        # Where there is no row yet, both old values are 0.
        self._sum_a += int(a.sum()) - int(self._a[ids].sum(dtype=np.int64))
        self._sum_quarters += int(quarters.sum()) - int(self._quarters[ids].sum(dtype=np.int64))
        self._rows += len(ids) - int(self._present[ids].sum())
        self._a[ids], self._quarters[ids], self._present[ids] = a, quarters, True


class Base:
    """A Lance table of N rows in fragments of ``ROWS_PER_FRAGMENT``, kept in a folder with its model."""

    def __init__(self, folder: Path, rows: int) -> None:
        """Made at the first use of the folder."""
        self.rows = rows
        self.table = folder / "table"
        self._model = folder / "model.npz"
        if not self._model.exists():
            folder.mkdir(parents=True, exist_ok=True)
            self._make()

    def model(self) -> Model:
        """A new one, of the base alone."""
        found = np.load(self._model)
        return Model(found["a"], found["quarters"], found["present"])

    def _make(self) -> None:
        a, quarters = np.zeros(2 * self.rows, np.int32), np.zeros(2 * self.rows, np.int32)
        present = np.zeros(2 * self.rows, np.bool_)
        rng = np.random.default_rng(42)

        def chunks() -> Iterator[pa.RecordBatch]:
            for start in range(0, self.rows, _CHUNK):
                ids = np.arange(start, min(start + _CHUNK, self.rows), dtype=np.int64) * 2
                made = _rows(rng, ids, _BASE_TIME)
                a[ids], quarters[ids] = made["a"].to_numpy(), made["b"].to_numpy() * 4
                present[ids] = True
                yield from made.to_batches()

        lance.write_dataset(
            chunks(), str(self.table), schema=SCHEMA, mode="overwrite", max_rows_per_file=ROWS_PER_FRAGMENT
        )
        np.savez(self._model, a=a, quarters=quarters, present=present)


class Upserts:
    """Batches for a base, each applied to the model as it is made."""

    def __init__(self, base: Base, seed: int) -> None:
        self.model = base.model()
        self._base_rows = base.rows
        self._rng = np.random.default_rng(seed)
        self._batches = 0

    def batch(self, count: int, updated_share: float = 0.9) -> pa.Table:
        updates = round(count * updated_share)
        ids = [self._rng.choice(self._base_rows, updates, replace=False, shuffle=False) * 2, self._new(count - updates)]
        mixed = np.concatenate(ids).astype(np.int64)
        self._rng.shuffle(mixed)
        self._batches += 1
        rows = _rows(self._rng, mixed, _UPSERT_TIME + self._batches * 1_000_000)
        self.model.apply(rows)
        return rows

    def patches(self, count: int) -> pa.Table:
        """Other values of ``a`` for so many rows of the base."""
        ids = self._rng.choice(self._base_rows, count, replace=False, shuffle=True) * 2
        columns = [pa.array(ids.astype(np.int64)), pa.array(self._rng.integers(0, 1_000_000_000, count))]
        rows = pa.table(columns, schema=pa.schema([SCHEMA.field(KEY), SCHEMA.field("a")]))
        self.model.patch(rows)
        return rows

    def _new(self, count: int) -> Ids:
        found = np.zeros(0, np.int64)
        while len(found) < count:
            drawn = self._rng.integers(0, self._base_rows, 2 * count) * 2 + 1
            found = np.unique(np.concatenate([found, self.model.absent(drawn)]))
        self._rng.shuffle(found)
        return found[:count]


def check(table: Path, model: Model) -> None:
    """Compare what a plain Lance reader sees with the model."""
    batches = lance.dataset(str(table)).scanner(columns=["a", "b"]).to_batches()
    check_sums(table, sum_up(batches), model)


def sum_up(batches: Iterable[pa.RecordBatch]) -> Sums:
    """Of batches with the columns ``a`` and ``b``."""
    rows, a, b = 0, 0, 0.0
    for batch in batches:
        rows += batch.num_rows
        a += pc.sum(batch["a"]).as_py() or 0
        b += pc.sum(batch["b"]).as_py() or 0.0
    return Sums(rows, a, b)


def check_sums(table: Path, found: Sums, model: Model) -> None:
    """``AssertionError`` unless they are the model's."""
    if found != model.sums:
        raise AssertionError(f"{table} holds {found}, the model {model.sums}")


def _rows(rng: np.random.Generator, ids: Ids, time: int) -> pa.Table:
    count = len(ids)
    columns: list[Any] = [
        pa.array(ids),
        _REGIONS.take(pa.array(rng.integers(0, len(_REGIONS), count))),
        pa.array(rng.integers(0, 1_000_000_000, count)),
        pa.array(rng.integers(0, 4_000_000, count) * 0.25),
        _texts(rng, count, 12, b"nm-"),
        pa.array(time + np.arange(count)),
        _texts(rng, count, 40, b""),
    ]
    return pa.table(columns, schema=SCHEMA)


def _texts(rng: np.random.Generator, count: int, width: int, start: bytes) -> pa.Array:
    letters = np.empty((count, width), np.uint8)
    letters[:, : len(start)] = np.frombuffer(start, np.uint8)
    letters[:, len(start) :] = _LETTERS[rng.integers(0, 32, (count, width - len(start)), dtype=np.uint8)]
    offsets = np.arange(count + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))
