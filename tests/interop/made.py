"""Tables for readers of others, each with what the model says of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import yaml
from lance.namespace import RestAdapter

from lancewal_core.catalog.opened import open_directory
from lancewal_core.cli.program import run
from lancewal_flusher.merge.plan import MergeLimits
from lancewal_reader.table import reads_of
from lancewal_tables.snapshots.make import make_snapshot
from tests.support.pipeline import EVERY_TYPE, SMALL, Pipeline, Row

SNAPSHOT = "kept"
TITLES = {
    "plain": "Integers and text",
    "every": "Every column type",
    "columns": "Columns that a merge rewrote",
    "snapshot": "A named snapshot, while the table goes on",
    "cut": "A table of a cut, as the branch that the cut names",
    "directory": "A catalog in a folder, by Lance's directory namespace",
    "rest": "The same folder, by a REST server of Lance Namespace",
}
CUT = "june"
NAMES = ("shop.items", "shop.orders")


@dataclass(frozen=True, slots=True)
class Made:
    """``branch``: what is read is this branch.  ``namespace``: the table is found by its name there, with these properties of
    Lance's clients.  ``expected``: file with all rows, in the order of keys."""

    uri: str
    branch: str | None
    rows: int
    a: int
    patched: int
    about: str
    expected: str | None = None
    namespace: tuple[str, dict[str, str]] | None = None

    def asked(self, questions: Iterable[str]) -> dict[str, Any]:
        told = {"uri": self.uri, "branch": self.branch, "rows": self.rows, "a": self.a, "patched": self.patched}
        named = {"namespace": self.namespace, "names": NAMES, "name": NAMES[-1], "expected": self.expected}
        return {**told, **named, "questions": list(questions)}


@contextmanager
def made_tables(folder: Path) -> Iterator[dict[str, Made]]:
    """The tables; inside ``with`` a REST server of pylance, over the folder of the catalog."""
    merged, cut = _lake(folder / "lake")
    root = str(Path(merged.uri).parent)
    with RestAdapter("dir", {"root": root}, port=0) as server:
        yield {
            **_tables(folder),
            "cut": cut,
            "directory": replace(merged, namespace=("dir", {"root": root})),
            "rest": replace(merged, namespace=("rest", {"uri": f"http://127.0.0.1:{server.port}"})),
        }


def _tables(folder: Path) -> dict[str, Made]:
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
    return _told(pipeline.uri, None, pipeline.oracle.values())


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
    return _told(pipeline.uri, None, pipeline.oracle.values())


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
    return _told(pipeline.uri, SNAPSHOT, kept)


def _lake(folder: Path) -> tuple[Made, Made]:
    """Of a catalog with two tables: the merged rows of one, after patches and deletes, and the same table in a cut that has
    unmerged rows too."""
    root, config = folder / "root", folder / "lancewal.yaml"
    root.mkdir(parents=True)
    config.write_text(yaml.safe_dump({"catalog": {"root": str(root)}}))
    _run("catalog", "init", config)
    merged: list[Row] = []
    rows: list[Row] = []
    for seed, name in enumerate(NAMES):
        (folder / name).mkdir()
        pipeline = Pipeline(folder / name, SMALL, seed=seed, topic=name)
        for _ in range(3):
            pipeline.produce(300)
            pipeline.merge_all(MergeLimits(adopt_rows=30))
        for region, number in list(pipeline.oracle)[::2]:
            pipeline.patch(region, number, a=77)
        for region, number in list(pipeline.oracle)[::7]:
            pipeline.delete(region, number)
        pipeline.merge_all()
        merged = list(pipeline.oracle.values())
        pipeline.produce(100)
        pipeline.ingest()
        rows = list(pipeline.oracle.values())
        pipeline.close()
        shutil.move(pipeline.uri, root / f"{name}.lance")
        _run("catalog", "register", name, "-t", root / f"{name}.lance", config)
    _run("cut", "make", CUT, "--tables", "shop.*", "--up-to", "durable", config)
    cut = open_directory(str(root)).cut(CUT)
    assert cut is not None
    uri = root / f"{NAMES[-1]}.lance"
    return (
        replace(_told(str(uri), None, merged), expected=_stored(folder / "merged.json", merged)),
        replace(_told(str(uri), cut.tables[NAMES[-1]].snapshot, rows), expected=_stored(folder / "cut.json", rows)),
    )


def _run(*words: str | Path) -> None:
    *command, config = map(str, words)
    if run([*command, "-c", config]):
        raise RuntimeError(f"lancewal {' '.join(command)} failed")


def _stored(file: Path, rows: Iterable[Row]) -> str:
    file.write_text(json.dumps(sorted([row["region"], row["id"], row["a"], row["s"]] for row in rows)))
    return str(file)


def _told(uri: str, branch: str | None, rows: Iterable[Row]) -> Made:
    rows = list(rows)
    dataset: Any = lance.dataset(uri)
    if branch is not None:
        dataset = dataset.checkout_version((branch, None))
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    hidden = sum(fragment.deletion_file is not None for fragment in fragments)
    apart = sum(len(fragment.files) > 1 for fragment in fragments)
    about = f"{len(fragments)} fragments, {hidden} with deletion files, {apart} with column files, file format "
    return Made(
        uri,
        branch,
        len(rows),
        sum(row["a"] or 0 for row in rows),
        sum(row["a"] == 77 for row in rows),
        about + str(dataset.data_storage_version),
    )
