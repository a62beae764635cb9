"""Tables for readers of others, each with what the model says of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.table import reads_of
from lancewal_tables.snapshots.make import make_snapshot
from tests.support.pipeline import EVERY_TYPE, SMALL, Pipeline, Row

SNAPSHOT = "kept"
TITLES = {
    "plain": "Integers and text",
    "every": "Every column type",
    "columns": "Columns that a merge wrote anew",
    "snapshot": "A named snapshot, while the table goes on",
}


@dataclass(frozen=True, slots=True)
class Made:
    """``branch``: what is read is this branch."""

    uri: str
    branch: str | None
    rows: int
    a: int
    patched: int
    about: str

    def asked(self, questions: Iterable[str]) -> dict[str, Any]:
        told = {"uri": self.uri, "branch": self.branch, "rows": self.rows, "a": self.a, "patched": self.patched}
        return {**told, "questions": list(questions)}


def made_tables(folder: Path) -> dict[str, Made]:
    return {
        "plain": _merged(folder / "plain", SMALL),
        "every": _merged(folder / "every", EVERY_TYPE),
        "columns": _with_column_files(folder / "columns"),
        "snapshot": _with_snapshot(folder / "snapshot"),
    }


def _merged(folder: Path, columns: pa.Schema) -> Made:
    """Of several merges: rows hidden and patched."""
    folder.mkdir()
    pipeline = Pipeline(folder, columns, seed=3)
    for _ in range(4):
        pipeline.produce(300)
        pipeline.merge_all(MergeLimits(adopt_rows=30))
    for region, number in list(pipeline.oracle)[::2]:
        pipeline.patch(region, number, a=77)
    pipeline.merge_all()
    pipeline.close()
    return _told(pipeline, None, pipeline.oracle.values())


def _with_column_files(folder: Path) -> Made:
    """Patches of one narrow column of wide rows."""
    folder.mkdir()
    pipeline = Pipeline(folder, SMALL, seed=4, seal_rows=10_000)
    for id in range(600):
        pipeline.upsert(f"r{id % 3}", id, a=id, s=f"{id} " * 200)
    pipeline.merge_all(MergeLimits(adopt_rows=30))
    for region, id in list(pipeline.oracle)[::2]:
        pipeline.patch(region, id, a=77)
    pipeline.merge_all(MergeLimits(in_place_rows=1))
    for region, id in list(pipeline.oracle)[::7]:
        pipeline.delete(region, id)
    pipeline.merge_all()
    pipeline.close()
    return _told(pipeline, None, pipeline.oracle.values())


def _with_snapshot(folder: Path) -> Made:
    """Merged and unmerged rows, kept; merges and a compaction since."""
    folder.mkdir()
    pipeline = Pipeline(folder, SMALL, seed=5)
    for _ in range(3):
        pipeline.produce(300)
        pipeline.merge_all()
    for region, number in list(pipeline.oracle)[::2]:
        pipeline.patch(region, number, a=77)
    pipeline.ingest()
    kept = list(pipeline.oracle.values())
    context = pipeline.flusher()
    make_snapshot(context, reads_of(context, pipeline.uri), SNAPSHOT)
    pipeline.produce(300)
    pipeline.merge_all()
    lance.dataset(pipeline.uri).optimize.compact_files()
    pipeline.close()
    return _told(pipeline, SNAPSHOT, kept)


def _told(pipeline: Pipeline, branch: str | None, rows: Iterable[Row]) -> Made:
    rows = list(rows)
    dataset: Any = lance.dataset(pipeline.uri)
    if branch is not None:
        dataset = dataset.checkout_version((branch, None))
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    hidden = sum(fragment.deletion_file is not None for fragment in fragments)
    apart = sum(len(fragment.files) > 1 for fragment in fragments)
    about = f"{len(fragments)} fragments, {hidden} with deletion files, {apart} with column files, file format "
    return Made(
        pipeline.uri,
        branch,
        len(rows),
        sum(row["a"] or 0 for row in rows),
        sum(row["a"] == 77 for row in rows),
        about + str(dataset.data_storage_version),
    )
