"""``python -m tests.columns.embedding_conflicts``: an embedding job of pylance beside merges, and what each refuses the other.

docs/how-to/add-an-embedding-column.md has the figures.  A thread merges a generation of patches and upserts of random keys
again and again, as a flusher does.  Meanwhile this thread adds a column or writes vectors into it, by pylance alone, and
repeats each call that Lance refuses.  Afterwards every row must be what the records and the vectors give.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import lance
import pyarrow as pa
from lance.commit import CommitConflictError

from tests.support.flusher_tables import FlusherTable, patch, upsert, upserts

VECTOR = pa.list_(pa.float32(), 4)
FIELD = pa.field("embedding", VECTOR)
NULLS = "arrow_cast(NULL, 'FixedSizeList(4, Float32)')"
_TRIES_MAX = 5
"""Calls of one kind that Lance may refuse in a row until the job gives up."""


def embed(text: str) -> list[float]:
    return [float(len(text)), float(sum(map(ord, text)) % 97), 0.0, 1.0]


@dataclass(slots=True)
class Figures:
    """One act beside merges."""

    act: str
    calls: int = 0
    refused: int = 0
    """Calls of the job that Lance refused, and that were repeated."""
    merges: int = 0
    planned_again: int = 0
    """Merges that Lance refused because of the job, and that were planned again."""
    seconds: float = 0.0
    given_up: int = 0
    """Acts that Lance refused ``_TRIES_MAX`` times."""

    @property
    def line(self) -> str:
        counts = (self.calls, self.refused, self.given_up, self.merges, self.planned_again)
        return f"| {self.act} | {' | '.join(map(str, counts))} | {self.seconds:.1f} |"


class Job:
    """A table whose merges never end, and a job of another program."""

    def __init__(self, folder: Path, rows: int, pause_s: float) -> None:
        self.table = FlusherTable(folder, partitions=1)
        self.rows = rows
        self.pause_s = pause_s
        self.rng = Random(1)
        for first in range(0, rows, 10_000):
            self.table.generation(0, upserts(range(first, min(first + 10_000, rows))))
            self.table.round()

    @contextmanager
    def merging(self, figures: Figures) -> Iterator[None]:
        """Merge while the caller works."""
        ended = threading.Event()

        def merge() -> None:
            while not ended.is_set():
                ids = self.rng.sample(range(self.rows), 20)
                changes = [patch(id, a=id) for id in ids[:15]] + [upsert(id, a=id, s=f"new{id}") for id in ids[15:]]
                self.table.generation(0, changes)
                report = self.table.round()
                figures.merges += len(report.merges)
                figures.planned_again += len(report.refused)
                ended.wait(self.pause_s)

        thread = threading.Thread(target=merge)
        began = time.monotonic()
        thread.start()
        try:
            yield
        finally:
            figures.seconds = time.monotonic() - began
            ended.set()
            thread.join()
            self.table.round()  # the last round may have given up, refused again and again

    def repeated(self, figures: Figures, act: Callable[[Any], object]) -> None:
        """Call ``act`` with the newest version until Lance takes it."""
        for _ in range(_TRIES_MAX):
            figures.calls += 1
            try:
                act(lance.dataset(self.table.uri))
            except (CommitConflictError, OSError) as error:
                if not any(words in str(error).lower() for words in ("conflict", "concurrent writers")):
                    raise
                figures.refused += 1
            else:
                return
        figures.given_up += 1

    def add_with_values(self, model_s: float) -> Figures:
        """``model_s``: seconds that the model takes for 1,000 texts."""
        figures = Figures(f"`add_columns` with a function, {model_s:g} s for 1,000 vectors")

        @lance.batch_udf(output_schema=pa.schema([FIELD]))
        def compute(batch: pa.RecordBatch) -> pa.RecordBatch:
            time.sleep(model_s * batch.num_rows / 1_000)
            return pa.record_batch([pa.array(map(embed, batch["s"].to_pylist()), VECTOR)], schema=pa.schema([FIELD]))

        with self.merging(figures):
            self.repeated(figures, lambda dataset: dataset.add_columns(compute, read_columns=["s"]))
        return figures

    def add_nulls(self) -> Figures:
        figures = Figures("`add_columns` of nulls")
        with self.merging(figures):
            self.repeated(figures, lambda dataset: dataset.add_columns({"embedding": NULLS}))
        return figures

    def fill(self, model_s: float, batch_rows: int) -> Figures:
        """Lance repeats a ``merge_insert`` by itself.  It is told not to here, so that all refusals are counted."""
        figures = Figures(f"`merge_insert` of {batch_rows:,} vectors at a time, {model_s:g} s for 1,000")
        with self.merging(figures):
            for _ in range(2):
                missing = lance.dataset(self.table.uri).to_table(
                    columns=["region", "id", "s"], filter="embedding IS NULL"
                )
                for batch in missing.to_batches(max_chunksize=batch_rows):
                    time.sleep(model_s * batch.num_rows / 1_000)
                    vectors = pa.array(map(embed, batch["s"].to_pylist()), VECTOR)
                    source = pa.Table.from_batches([batch]).append_column(FIELD, vectors)
                    self.repeated(
                        figures,
                        lambda dataset, source=source: (  # type: ignore[misc] # mypy infers no type for a default
                            dataset.merge_insert(["region", "id"])
                            .when_matched_update_all(condition="target.s = source.s")
                            .conflict_retries(0)
                            .execute(source)
                        ),
                    )
        return figures

    def check(self) -> int:
        """Every row is what the records gave; a vector is that of its row's text.  Return how many rows have none."""
        found = {(row["region"], row["id"]): row for row in self.table.rows()}
        assert found.keys() == self.table.model.keys()
        without = 0
        for key, row in self.table.model.items():
            vector = found[key].pop("embedding", None)
            assert found[key] == {name: value for name, value in row.items() if name != "embedding"}, key
            assert vector in (None, embed(row["s"])), key
            without += vector is None
        return without


def measure(rows: int, pause_s: float, model_s: float) -> Iterator[tuple[Figures, int]]:
    """Yield the figures of each act, and how many rows had no vector afterwards."""
    acts: list[Callable[[Job], Figures]] = [
        lambda job: job.add_nulls(),
        lambda job: job.add_with_values(0.0),
        lambda job: job.add_with_values(model_s),
        lambda job: job.fill(model_s, rows // 100),
        lambda job: job.fill(model_s, rows // 10),
    ]
    for number, act in enumerate(acts):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(Path(folder), rows, pause_s)
            if number > 2:
                job.table.dataset.add_columns({"embedding": NULLS})
            figures = act(job)
            yield figures, job.check()
            job.table.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.columns.embedding_conflicts", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two merges")
    parser.add_argument("--model", type=float, default=0.1, help="seconds that the model takes for 1,000 texts")
    options = parser.parse_args()
    print("| act | calls | refused | given up | merges | planned again | seconds | rows without a vector |")
    print("|---" * 8 + "|")
    for figures, without in measure(options.rows, options.pause, options.model):
        print(f"{figures.line} {without:,} |", flush=True)


if __name__ == "__main__":
    main()
