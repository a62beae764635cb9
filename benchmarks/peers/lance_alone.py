"""Upsert by pylance alone, if the replaced rows are already known: the floor of row b.

The steps are the three of a merge, and nothing else: write a data file of the rows (``write_fragments``), write
deletion files for the replaced rows (``delete_rows``, on as many threads as cores), and commit.  There is no lookup, no
key index, and no record of what was merged.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import write_fragments

from benchmarks.elapsed import Elapsed
from benchmarks.keyed_rows import KEY

_NOWHERE = -1


class LanceAlone:
    """A table of ``benchmarks.keyed_rows``, and the address of each id's row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._dataset: Any = lance.dataset(str(path))
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1)
        found = self._dataset.to_table(columns=[KEY], with_row_address=True)
        self._addresses = np.full(int(found[KEY].to_numpy().max()) + 1, _NOWHERE, np.int64)
        self._addresses[found[KEY].to_numpy()] = found["_rowaddr"].to_numpy().astype(np.int64)

    def close(self) -> None:
        self._threads.shutdown()

    def upsert(self, rows: pa.Table) -> Elapsed:
        hidden = self._hidden(rows)
        cpu, start = time.process_time(), time.perf_counter()
        written = write_fragments(rows, self._dataset)
        changed = list(self._threads.map(self._hide, hidden.items()))
        operation = lance.LanceOperation.Update(
            updated_fragments=[fragment for fragment in changed if fragment is not None],
            new_fragments=written,
            removed_fragment_ids=[i for i, fragment in zip(hidden, changed, strict=True) if fragment is None],
        )
        self._dataset = lance.LanceDataset.commit(self._dataset, operation, read_version=self._dataset.version)
        spent = Elapsed(time.perf_counter() - start, time.process_time() - cpu)
        self._note(rows)
        return spent

    def _hidden(self, rows: pa.Table) -> dict[int, list[int]]:
        """By fragment the rows that these replace."""
        ids = rows[KEY].to_numpy()
        known = self._addresses[ids[ids < len(self._addresses)]]
        known = np.sort(known[known != _NOWHERE])
        fragments, starts = np.unique(known >> 32, return_index=True)
        parts = np.split(known & 0xFFFFFFFF, starts[1:])
        return {int(fragment): part.tolist() for fragment, part in zip(fragments, parts, strict=True)}

    def _hide(self, item: tuple[int, list[int]]) -> Any:
        fragment_id, rows = item
        return self._dataset.get_fragment(fragment_id).delete_rows(rows)

    def _note(self, rows: pa.Table) -> None:
        """Where the rows are now: in the newest fragment, in their order."""
        ids = rows[KEY].to_numpy()
        added = self._dataset.get_fragments()[-1]
        if added.physical_rows != len(ids):
            raise AssertionError(f"{self.path}: not one new fragment of {len(ids)} rows")
        grown = max(int(ids.max()) + 1 - len(self._addresses), 0)
        self._addresses = np.concatenate([self._addresses, np.full(grown, _NOWHERE, np.int64)])
        self._addresses[ids] = (added.fragment_id << 32) + np.arange(len(ids))
