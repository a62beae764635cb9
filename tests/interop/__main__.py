"""``python3 dev.py interop [VERSION ...]``: which Lance cores read a merged table, with pylance from PyPI.

Each version is installed into an environment of its own, below ``INTEROP_CACHE`` (default: a folder in the cache; a name that
began with LANCEWAL would be taken for a setting): what is fetched is locked by version alone, and run on tables made here.
The page ``docs/reference/which-readers-work.md`` says what each found, and what of the tables it met.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import lance

from lancewal_flusher.merge.plan import MergeLimits
from tests.support.pipeline import EVERY_TYPE, SMALL, Pipeline

VERSIONS = ("1.0.4", "2.0.1", "4.0.2", "6.1.0", "8.0.1", "10.0.0", "12.0.0", "14.0.2")
PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "which-readers-work.md"
FOLDER = Path(os.environ.get("INTEROP_CACHE", Path.home() / ".cache" / "lancewal" / "interop"))
ASKED = ("count", "two columns", "all columns", "filter", "take", "aggregate by DuckDB")

READER = """
import json, sys
import lance
asked = json.loads(sys.argv[1])
dataset = None
for name in asked["questions"]:
    try:
        dataset = dataset or lance.dataset(asked["uri"])
        if name == "count":
            found = dataset.count_rows() == asked["rows"]
        elif name == "two columns":
            rows = dataset.to_table(columns=["id", "a"])
            found = (rows.num_rows, sum(a or 0 for a in rows["a"].to_pylist())) == (asked["rows"], asked["a"])
        elif name == "all columns":
            found = dataset.to_table().num_rows == asked["rows"]
        elif name == "filter":
            found = dataset.to_table(filter="a = 77").num_rows == asked["patched"]
        elif name == "take":
            found = dataset.take([0, 3, 5]).num_rows == 3
        else:
            import duckdb
            found = duckdb.sql("SELECT count(*), sum(a) FROM dataset").fetchall() == [(asked["rows"], asked["a"])]
        print(json.dumps([name, "right" if found else "WRONG"]))
    except BaseException as error:
        print(json.dumps([name, f"{type(error).__name__}: {str(error)[:60]}".replace("|", "/")]))
    sys.stdout.flush()
"""


def main(versions: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="lancewal-interop-") as place:
        tables = {
            name: _made(Path(place) / name, columns) for name, columns in (("plain", SMALL), ("every", EVERY_TYPE))
        }
        found: dict[str, dict[str, dict[str, str]]] = {}
        for version in versions or VERSIONS:
            python = _environment(version)
            found[version] = {name: _asked(python, table) for name, table in tables.items()}
            print(version, json.dumps(found[version]), flush=True)
        PAGE.write_text(_page(found, {name: table["about"] for name, table in tables.items()}))
    return 0


def _made(folder: Path, columns: Any) -> dict[str, Any]:
    """A table of several merges: rows hidden and patched, and what the model says of it."""
    folder.mkdir()
    pipeline = Pipeline(folder, columns, seed=3)
    for _ in range(4):
        pipeline.produce(300)
        pipeline.merge_all(MergeLimits(adopt_rows=30))
    for region, number in list(pipeline.oracle)[::2]:
        pipeline.patch(region, number, a=77)
    pipeline.merge_all()
    pipeline.close()
    rows = pipeline.oracle.values()
    fragments = [fragment.metadata for fragment in lance.dataset(pipeline.uri).get_fragments()]
    hidden = sum(fragment.deletion_file is not None for fragment in fragments)
    apart = sum(len(fragment.files) > 1 for fragment in fragments)
    return {
        "uri": pipeline.uri,
        "rows": len(rows),
        "a": sum(row["a"] or 0 for row in rows),
        "patched": sum(row["a"] == 77 for row in rows),
        "questions": ASKED,
        "about": f"{len(fragments)} fragments, {hidden} with deletion files, {apart} with column files, file format "
        f"{lance.dataset(pipeline.uri).data_storage_version}",
    }


def _environment(version: str) -> Path:
    folder = FOLDER / f"pylance-{version}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", f"pylance=={version}", "duckdb"], check=True)
        (folder / "ready").touch()
    return python


def _asked(python: Path, table: dict[str, Any]) -> dict[str, str]:
    command = [str(python), "-c", READER, json.dumps(table)]
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300
    )
    said = dict(json.loads(line) for line in done.stdout.splitlines())
    return {name: said.get(name, f"the process ended, {done.returncode}") for name in ASKED}


def _page(found: dict[str, dict[str, dict[str, str]]], about: dict[str, str]) -> str:
    lines = [
        "# Which readers work",
        "",
        "Made by `python3 dev.py interop`: merged tables opened by pylance as PyPI has it.",
    ]
    titles = {"plain": "Integers and text", "every": "Every column type"}
    for name, title in titles.items():
        lines += ["", f"## {title}", "", f"The table: {about[name]}.", "", f"| pylance | {' | '.join(ASKED)} |"]
        lines.append("|---" * (len(ASKED) + 1) + "|")
        lines += [
            f"| {version} | {' | '.join(tables[name][one] for one in ASKED)} |" for version, tables in found.items()
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
