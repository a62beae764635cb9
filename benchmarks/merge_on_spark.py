"""The Spark runner against the thread runner: the same merge tasks on the same two cores.

``python -m benchmarks.merge_on_spark [--rows 20000000] [--keys 2000000] [--fragments 20] [--repeats 15]``

Fragments have a million rows, as Lance makes them by default, and Spark talks to Python as the how-to page says.
What is timed is ``run`` of the runners: finding the rows of all fragments whose key is in the set, and hiding them
there.  Planning and commit are the same for both and left out, so the ratio of whole merges is smaller.  The first run of
each runner (Python workers start, caches fill) is shown apart.  Both must find as many rows in each fragment.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.spark_session import CORES, local_session

if TYPE_CHECKING:
    from lancewal_flusher.tasks.merge_task import FragmentTask
    from lancewal_flusher.tasks.runner import Runner


def run() -> dict[str, float]:
    """In a process of its own: Spark's workers must be there before Lance is loaded."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.merge_on_spark"], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 20_000_000), ("keys", 2_000_000), ("fragments", 20), ("repeats", 15)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args(arguments)
    session = local_session()  # before Lance is loaded
    try:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(compare(session, folder, chosen.rows, chosen.keys, chosen.fragments, chosen.repeats)))
    finally:
        session.stop()


def compare(session: Any, folder: str, rows: int, keys: int, fragments: int, repeats: int) -> dict[str, float]:
    """Seconds of both runners, first and median of the later runs, and the ratio of the medians."""
    from lancewal_core.process.clock import SystemClock
    from lancewal_core.process.tasks import ThreadTasks
    from lancewal_core.store.obstore import open_store
    from lancewal_core.table.lance.table import LanceTable
    from lancewal_flusher.tasks.runner import ThreadRunner
    from lancewal_flusher.tasks.spark_runner import SparkRunner

    uri = f"{folder}/table"
    _write(uri, rows, fragments)
    table = LanceTable(uri)
    tasks = _tasks(table, rows, keys)
    pool = ThreadTasks(io_threads=CORES)
    runners: dict[str, Runner] = {
        "threads": ThreadRunner(table, pool),
        "spark": SparkRunner(lambda: session, uri, open_store(uri), pool, SystemClock()),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    hits: dict[str, list[int]] = {}
    for _ in range(repeats + 1):
        for name, runner in runners.items():
            began = time.perf_counter()
            hits[name] = [result.hits for result in runner.run(tasks)]
            seconds[name].append(time.perf_counter() - began)
    pool.close()
    assert hits["threads"] == hits["spark"], hits
    assert sum(hits["spark"]) == min(rows, keys)
    found = {f"{name}_first_s": values[0] for name, values in seconds.items()}
    found |= {f"{name}_s": statistics.median(values[1:]) for name, values in seconds.items()}
    return {name: round(value, 3) for name, value in (found | {"ratio": found["spark_s"] / found["threads_s"]}).items()}


def _write(uri: str, rows: int, fragments: int) -> None:
    """Keys of a text and a number, scattered; one column beside them."""
    import lance
    import numpy as np
    import pyarrow as pa

    ids = np.random.default_rng(1).permutation(rows)
    columns = {"region": _regions(ids), "id": pa.array(ids), "v": pa.array(np.arange(rows, dtype=np.float64))}
    lance.write_dataset(pa.table(columns), uri, max_rows_per_file=-(-rows // fragments))


def _tasks(table: Any, rows: int, keys: int) -> list[FragmentTask]:
    import numpy as np
    import pyarrow as pa

    from lancewal_core.rows.key_set import KeySet
    from lancewal_flusher.tasks.merge_task import FragmentTask, KeyScan

    ids = np.random.default_rng(2).choice(rows, min(rows, keys), replace=False)
    keys_of_all = KeyScan(KeySet(pa.table({"region": _regions(ids), "id": pa.array(ids)})))
    pinned = table.newest()
    return [
        FragmentTask(pinned.version, f.fragment_id, f.physical_rows, keys_of_all, 0, ("region", "id"))
        for f in pinned.fragments()
    ]


def _regions(ids: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.binary_join_element_wise("r", pa.array(ids % 16).cast(pa.string()), "")


if __name__ == "__main__":
    main(sys.argv[1:])
