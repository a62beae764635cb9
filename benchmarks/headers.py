"""``python -m benchmarks.headers [ROWS [RUNS]]``: compare ingest of records that have headers with the same without any.

The headers say nothing to lancewal: one trace id, or four as Debezium writes them.  The kinds of records alternate in each
run; ratios are of the least times, which other work on the machine disturbs least.

The *client* is a process that only consumes the same records, and asks each of them for its headers, as every consumer in
Python must.  What that takes beyond records without headers is no part of lancewal: the *best ratio* is the one of an ingest
that takes no further time for headers.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.ingest import BUDGET, Headers, Prefilled, child, prefill
from benchmarks.workload import upserts
from lancewal_demo.stack import KafkaBroker

KEYS = 3_000_000
KINDS: Mapping[str, Headers] = {
    "none": [],
    "trace": [("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")],
    "debezium": [
        ("__debezium.context.connectorLogicalName", b"inventory"),
        ("__debezium.context.taskId", b"0"),
        ("__debezium.context.connectorName", b"postgresql"),
        ("__op", b"u"),
    ],
}


def run(rows: int = 600_000, runs: int = 3) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    clients: dict[str, list[float]] = {kind: [] for kind in KINDS}
    try:
        with KafkaBroker(folder / "kafka") as broker:
            for kind, headers in KINDS.items():
                prefill(broker.bootstrap_servers, f"headers-{kind}", upserts(rows, KEYS, 1), headers)
            for number in range(runs):
                for kind, found in rates.items():
                    source = Prefilled(broker.bootstrap_servers, f"headers-{kind}", rows)
                    client = child("client", source, folder, 0)
                    clients[kind].append(client["cpu_s"])
                    table = folder / f"{kind}-{number}"
                    done = child("ingest", source, table, BUDGET)
                    found.append(done["rows_per_s"])
                    times[kind].append(done["cpu_s"])
                    shutil.rmtree(table)
    finally:
        shutil.rmtree(folder)
    rate = {kind: max(found) for kind, found in rates.items()}
    cpu = {kind: min(found) / rows * 1e6 for kind, found in times.items()}
    client_cpu = {kind: min(found) / rows * 1e6 for kind, found in clients.items()}
    result = {f"{kind}_rows_per_s": found for kind, found in rate.items()}
    result |= {f"{kind}_cpu_us": found for kind, found in cpu.items()}
    result |= {f"{kind}_client_cpu_us": found for kind, found in client_cpu.items()}
    for kind in KINDS:
        if kind != "none":
            best = cpu["none"] + client_cpu[kind] - client_cpu["none"]
            result |= {
                f"{kind}_ratio": rate[kind] / rate["none"],
                f"{kind}_cpu_ratio": cpu["none"] / cpu[kind],
                f"{kind}_best_cpu_ratio": cpu["none"] / best,
                f"{kind}_of_best_cpu_ratio": best / cpu[kind],
            }
    return result


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:])), indent=1))
