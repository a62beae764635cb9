"""Compare kinds of stores: requests of the acts of ``distance``, and freshness.

* ``run`` counts requests on the small S3, Azurite, and the front of fake-gcs-server.  The table has four partitions.  Requests
  for rows of the table are not counted, and each figure is the median of some runs, as in ``distance``.
* ``run_freshness`` measures versitygw and both emulators, one after the other, on one broker.  Times of emulators say nothing
  about clouds.  The ratio to versitygw shows whether lancewal waits for one of them more often.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.distance import RUNS, Distance, MeasuredStore
from benchmarks.freshness import Load, measured
from benchmarks.recorded_store import RecordedStore
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.clouds import AzureServer, GcsServer
from tests.support.small_s3.child import SmallS3Process
from tests.support.store_addresses import SERVERS, inside

PARTITIONS = 4
SECONDS, RATE, BASE_ROWS = 20, 1_000, 100_000
"""Of the measurement of freshness."""
DELETED = 10
ACTS = {
    "append": "append a segment to the log",
    "start_ingest": "an ingest process takes over all partitions",
    "stop_ingest": "an ingest process flushes and hands over all partitions",
    "merge": "merge round of 10 k rows",
    "warm": "strong read on an open table between two merges",
    "again": "strong read on an open table, nothing new",
    "open_merged": "open the table and read strongly, all merged",
    "garbage": "garbage collection, nothing to delete",
    "delete": f"delete {DELETED} objects",
}
KINDS = {"s3": "s3", "azure": "az", "gcs": "gs"}
"""Kinds of the servers in tests."""
STORES = {"s3": "S3", "azure": "Azure", "gcs": "Google Cloud Storage"}


def run() -> dict[str, float]:
    figures: dict[str, float] = {}
    for name in STORES:
        with tempfile.TemporaryDirectory(prefix="lancewal-benchmark-") as folder, ExitStack() as stack:
            store, holder = _started(name, Path(folder), stack)
            for act, requests in _counts(Distance(store, PARTITIONS, stack, holder)):
                print(f"{name}, {act}: {requests:g}", flush=True)
                figures[f"{name}_{act}_requests"] = requests
    for name in ("azure", "gcs"):
        for act in ACTS:
            figures[f"{name}_{act}_ratio"] = figures[f"{name}_{act}_requests"] / figures[f"s3_{act}_requests"]
    return figures


def run_freshness() -> dict[str, float]:
    """Return how old rows are when a strong read shows them, by store: 1,000 rows a second in a table of 100,000."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="lancewal-benchmark-") as folder, ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(Path(folder) / "kafka"))
        for kind in STORES:
            place = Path(folder) / kind
            place.mkdir()
            server = SERVERS[KINDS[kind]](place)
            server.start()
            stack.callback(server.stop)
            uri, options = inside(server, "benchmark", "fresh")
            load = Load(SECONDS, RATE, BASE_ROWS, uri, options)
            found = measured(place, broker.bootstrap_servers, load, topic=f"fresh-{kind}")
            print(f"{kind}, freshness: {found}", flush=True)
            if found["rows_unseen"]:
                raise RuntimeError(f"{found['rows_unseen']} rows were never seen on {kind}")
            figures[f"{kind}_p99_ms"] = found["p99_ms"]
    for kind in ("azure", "gcs"):
        figures[f"{kind}_ratio"] = figures[f"{kind}_p99_ms"] / figures["s3_p99_ms"]
    return figures


def _started(name: str, folder: Path, stack: ExitStack) -> tuple[MeasuredStore, str]:
    """Return the store, and the address of a bucket in it."""
    if name == "s3":
        return stack.enter_context(SmallS3Process(0.0, folder / "s3.log")), "s3://bucket"
    if name == "azure":
        azure = AzureServer(folder)
        azure.start()
        stack.callback(azure.stop)
        recorded = RecordedStore(azure.endpoint, 2, azure.options, "azure_storage_endpoint")
        return stack.enter_context(recorded), f"az://{azure.container('benchmark')}"
    gcs = GcsServer(folder)
    gcs.start()
    stack.callback(gcs.stop)
    recorded = RecordedStore(gcs.endpoint, 1, gcs.options, "google_base_url")
    return stack.enter_context(recorded), f"gs://{gcs.bucket('benchmark')}"


def _counts(table: Distance) -> Iterator[tuple[str, float]]:
    # The first one opens the partitions as well.
    yield "append", statistics.median(table.requests_of(table.append_a_segment) for _ in range(RUNS))
    for act, what, value in table.measure(segments=0, idle=False):
        # How many segments a read finds follows from how fast they were appended.
        if act in ACTS and what == "requests_besides_segments":
            yield act, value
    yield "delete", table.requests_of(table.put_and_delete(DELETED))
