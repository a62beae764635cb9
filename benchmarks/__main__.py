"""``python -m benchmarks [NAME ...]``: run benchmarks, print their figures, and write ``docs/benchmarks.md``.

Without names all benchmarks run except the large ones (``LARGE``). ``benchmarks/results/`` keeps the figures of each
benchmark in a JSON file, with the machine on which they were measured.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks import (
    changes,
    changes_on_spark,
    columns,
    commits,
    cuts,
    distance,
    formats,
    freshness,
    headers,
    ingest,
    memory,
    merge,
    merge_large,
    merge_on_spark,
    merge_strategies,
    partitions,
    reads,
    reads_on_spark,
    restart,
    search,
    steady,
    stores,
    strong_read,
    write_amplification,
    wrong_topic,
)
from benchmarks.report import write_page

BENCHMARKS: dict[str, Callable[[], dict[str, float]]] = {
    "strong-read": strong_read.run,
    "reads": reads.run,
    "reads-on-spark": reads_on_spark.run,
    "distance": distance.run,
    "stores": stores.run,
    "stores-freshness": stores.run_freshness,
    "steady": steady.run,
    "partitions": partitions.run,
    "freshness": freshness.run,
    "restart": restart.run,
    "wrong-topic": wrong_topic.run,
    "columns": columns.run,
    "cuts": cuts.run,
    "changes": changes.run,
    "changes-on-spark": changes_on_spark.run,
    "changes-large": changes.run_large,
    "ingest": ingest.run,
    "formats": formats.run,
    "commits": commits.run,
    "headers": headers.run,
    "memory": memory.run,
    "merge": merge.run,
    "write-amplification": write_amplification.run,
    "merge-strategies": merge_strategies.run,
    "merge-on-spark": merge_on_spark.run,
    "merge-large": merge_large.run,
    "search": search.run,
    "search-large": partial(search.run, 1_000_000),
}
LARGE = {"changes-large", "merge-large", "search-large"}
"""Run only when they are named."""
RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        raise SystemExit(f"unknown benchmarks {unknown}; there are {sorted(BENCHMARKS)}")
    RESULTS.mkdir(exist_ok=True)
    for name in names or [name for name in BENCHMARKS if name not in LARGE]:
        print(f"{name} ...", flush=True)
        result = {"machine": machine(), "figures": BENCHMARKS[name]()}
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps(result["figures"], indent=1), flush=True)
    write_page(RESULTS, PAGE)


def machine() -> dict[str, object]:
    """What the figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
