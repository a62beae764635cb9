"""The program that runs the recipes of docs/how-to/keep-history.md, in a PySpark of its own.

The argument is a JSON object:

``start``                  the program that makes ``spark``
``recipes``, ``tables``    the program of each recipe, and the place of its Delta table
``statements``             SQL to run before the recipes
``killed``                 whether the process kills itself once each recipe has made its MERGE
``folder``                 of results

The process appends the number of each batch to ``batches.jsonl``.  At the end it writes each Delta table to
``<recipe>.arrow``.  A line on stdout for each recipe says how many rows the last MERGE has changed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

Batch = Callable[[Any, int], None]
_CHANGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")

_STARTS_MAX = 20


def main(asked: dict[str, Any]) -> None:
    folder, recipes = Path(asked["folder"]), asked["recipes"]
    all_merged = threading.Barrier(len(recipes))
    merged = {recipe: threading.Event() for recipe in recipes}

    def watched(recipe: str, keep: Batch) -> Batch:
        def kept(batch: Any, number: int) -> None:
            keep(batch, number)
            with (folder / "batches.jsonl").open("a") as file:
                file.write(json.dumps([recipe, number]) + "\n")
            merged[recipe].set()
            if asked["killed"]:
                all_merged.wait()
                os.kill(os.getpid(), signal.SIGKILL)

        return kept

    names: dict[str, Any] = {"watched": watched}
    exec(compile(asked["start"], "start", "exec"), names)
    spark = names["spark"]
    for statement in asked["statements"]:
        spark.sql(statement)

    def run(recipe: str, before: str | None) -> None:
        if before is not None:
            merged[before].wait()
        try:
            _run(recipe, recipes[recipe], names)
        finally:
            merged[recipe].set()

    with ThreadPoolExecutor(len(recipes)) as pool:
        list(pool.map(run, recipes, [None, *recipes]))
    for recipe, place in asked["tables"].items():
        rows: pa.Table = spark.read.format("delta").load(place).toArrow()
        with pa.OSFile(str(folder / f"{recipe}.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as to:
            to.write_table(rows)
        (last,) = spark.sql(f"DESCRIBE HISTORY delta.`{place}` LIMIT 1").collect()
        changed = [int(last.operationMetrics[name]) for name in _CHANGED]
        print(json.dumps({"name": recipe, "changed": changed}), flush=True)
    spark.stop()


def _run(recipe: str, program: str, names: dict[str, Any]) -> None:
    """Run a program to its end.  A busy machine may not start the process that makes offsets in ten seconds: start again."""
    from pyspark.errors import StreamingQueryException

    for _ in range(_STARTS_MAX):
        try:
            exec(compile(program, recipe, "exec"), {**names})
            return
        except StreamingQueryException as error:
            if "Python worker failed to connect back" not in str(error):
                raise
    raise RuntimeError("Spark starts no process in time")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
