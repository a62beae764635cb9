"""Rows on the local disk, divided into shares by their key, so that one share at a time fits into memory.

A share is a file of consecutive Arrow streams.  Each has the rows that had gathered when the buffer was full.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BUFFER_BYTES = 32 << 20
"""Number of bytes that one ``Shares`` gathers in memory before it writes them to disk."""


class Shares:
    """Rows in ``count`` shares, as files in ``folder``.  The rows of a share keep the order in which they were added."""

    def __init__(self, folder: Path, schema: pa.Schema, count: int) -> None:
        folder.mkdir()
        self._folder = folder
        self.schema = schema
        self._count = count
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._bytes = 0
        self.rows = 0

    def add(self, batch: pa.RecordBatch, hashes: npt.NDArray[np.int32]) -> None:
        """Add rows to the shares by the hashes of their keys, one for each row."""
        if batch.num_rows == 0:
            return
        numbers = hashes % self._count
        order = np.argsort(numbers, kind="stable")
        batch, numbers = batch.take(pa.array(order)), numbers[order]
        borders = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1], True])
        for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            self._waiting.setdefault(int(numbers[start]), []).append(batch.slice(start, end - start))
        self.rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._bytes >= BUFFER_BYTES:
            self._write()

    def load(self, number: int) -> pa.Table:
        """Return the rows of one share, and delete its file."""
        self._write()
        path = self._path(number)
        batches: list[pa.RecordBatch] = []
        if path.exists():
            size = path.stat().st_size
            with pa.OSFile(str(path)) as file:
                while file.tell() < size:
                    batches += pa.ipc.open_stream(file)
            path.unlink()
        return pa.Table.from_batches(batches, self.schema)

    def _write(self) -> None:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        for number, batches in self._waiting.items():
            with open(self._path(number), "ab") as file, pa.ipc.new_stream(file, self.schema, options=options) as out:
                out.write_table(pa.Table.from_batches(batches, self.schema).combine_chunks())
        self._waiting.clear()
        self._bytes = 0

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:04d}.arrow"
