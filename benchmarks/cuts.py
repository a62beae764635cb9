"""Measure cuts of many tables, catalogs of many entries, and services without their catalog (``cuts_without_catalog``).

The store is the small S3 of ``tests.support``, 30 ms away while something is measured.  Brokers and commands are processes as
in production.  ``benchmarks.lake`` says how twenty tables are served: two processes of ingest with ten tables each, and one
flusher with all of them, with default settings.

* *idle*: `lancewal cut make` over tables whose records are all merged and that nobody serves.
* *reads*: of one of these tables, at the cut and at its snapshot, in turns.  Requests are those of a new catalog and table.
* *loaded*: after ``warm_s`` under load, freshness is measured for rows that are produced within ``window_s``, then for those
  that are produced while cuts are made, one after the other.  The freshness of a row is the end of the first strong read that
  shows it minus the time of its produce call.  Readers, a process for each, read ``READERS`` of the tables: twenty would
  measure themselves.  They never pause.  Then the floor: in place of cuts, processes run that only compute, each for as much
  processor time as a cut took.  Once the readers have ended, a cut is made under the same load.
* *moving*: the same services.  A quarter of the tables get rows, as many each as before.  A flusher of another table publishes
  a cut of all, every ``every_s``.  Its requests are told by its access key, and those for its own table do not count.  The age
  of the cut at a moment is the time since its positions were asked for, as a reader sees it then.
* *entries*: a catalog of so many tables, in a folder and in PostgreSQL, which is on this machine.  A client opens it anew and
  lists it, changes an entry that it knows, and lists it again.

``.venv/bin/python -m benchmarks.cuts small`` prints figures for a few tables in three minutes.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

import numpy as np

import lancewal
from benchmarks import cuts_without_catalog
from benchmarks.distance import DELAY_S
from benchmarks.elapsed import seconds
from benchmarks.fresh_reads import FreshReader, p99
from benchmarks.lake import PARTITIONS, PROGRAM, ROOT, Lake
from benchmarks.steady import BROKER, PRODUCER_LINGER_MANY_MS, producing
from lancewal_core.catalog.catalog import StoredCatalog
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.opened import open_directory, open_postgres
from lancewal_core.names import paths
from lancewal_core.store.obstore import open_store
from lancewal_demo.stack import KafkaBroker
from lancewal_reader.table import open_table
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.small_s3.child import SmallS3Process
from tests.support.small_s3.requests import by_kind

READERS = 3
INGESTS = 2
CUTS = 3
CHANGING = 4
"""A quarter of the tables change."""
PUBLICATIONS = 3
RUNS = 15
IDLE_RECORDS = 200
_IN_TABLE = re.compile(r"^lake/[^/]+\.lance/")


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of a run; the defaults are those of the page."""

    idle: int = 100
    loaded: int = 20
    rows_per_s: int = 5_000
    rows: int = 20_000
    """Rows of a loaded table, all of which are upserted again and again."""
    warm_s: float = 60.0
    window_s: float = 30.0
    every_s: float = 30.0
    entries: int = 10_000
    away: cuts_without_catalog.Size = field(default_factory=cuts_without_catalog.Size)


SMALL = Size(3, 4, 500, 2_000, 10.0, 10.0, 10.0, 1_000, cuts_without_catalog.Size(1_000, 20_000, 10.0, 10.0))


def run(size: Size = Size()) -> dict[str, float]:
    idle = [f"idle.t{n:03}" for n in range(size.idle)]
    loaded = [f"loaded.t{n:02}" for n in range(size.loaded)]
    figures: dict[str, float] = {}
    folder = Path(tempfile.mkdtemp(prefix="lancewal-benchmark-"))
    topics = dict.fromkeys([*idle, *loaded], PARTITIONS) | cuts_without_catalog.TOPICS
    try:
        with ExitStack() as stack:
            store = stack.enter_context(SmallS3Process(0.0, folder / "s3.log"))
            broker = stack.enter_context(KafkaBroker(folder / "kafka", topics=topics, jvm_options=BROKER))
            lake = Lake(folder, store, broker.bootstrap_servers)
            lake.command("catalog", "init")
            lake.create(idle, IDLE_RECORDS)
            for name in idle:
                lake.fill(name, IDLE_RECORDS, IDLE_RECORDS)
            lake.create(loaded, size.rows)
            figures |= _idle(lake, idle) | _reads(lake, idle[0])
            figures |= _loaded(lake, loaded, idle[0], size)
            figures |= _told(cuts_without_catalog.run(folder, store, broker.bootstrap_servers, size.away))
            figures |= _entries(store, size.entries)
    finally:
        shutil.rmtree(folder)
    return figures


def _told(figures: dict[str, float]) -> dict[str, float]:
    for name, value in figures.items():
        print(f"{name}: {value:.3f}", flush=True)
    return figures


def _idle(lake: Lake, names: list[str]) -> dict[str, float]:
    with lake.far():
        lake.store.take()
        began, ended, _ = lake.command("cut", "make", "idle", "--tables", "idle.*")
        requests = len(lake.store.take())
    return _told({"idle_s": ended - began, "idle_requests": requests / len(names)})


def _reads(lake: Lake, name: str) -> dict[str, float]:
    options, uri = lake.store.options, lake.uri(name)
    with lake.far():
        cut = lancewal.open_catalog(ROOT, storage_options=options).cut("idle")
        said = json.loads(lake.command("cut", "show", "idle", "-o", "json")[2])
        at = f"snapshot:{said['cut']['tables'][name]['snapshot']}"
        plain = open_table(uri, storage_options=options)
        expected = plain.to_arrow(at=at).num_rows
        sides: dict[str, Callable[[], int]] = {
            "cut": lambda: cut[name].to_arrow().num_rows,
            "snapshot": lambda: plain.to_arrow(at=at).num_rows,
        }
        times: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(RUNS):
            for side, read in sides.items():
                began = time.perf_counter()
                if read() != expected:
                    raise AssertionError(f"{side}: other rows")
                times[side].append(time.perf_counter() - began)
        lake.store.take()
        lancewal.open_catalog(ROOT, storage_options=options).cut("idle")[name].to_arrow()
        at_cut = len(lake.store.take())
        open_table(uri, storage_options=options).to_arrow(at=at)
        at_snapshot = len(lake.store.take())
    middle = {side: statistics.median(found) for side, found in times.items()}
    return _told(
        {
            "read_ratio": middle["cut"] / middle["snapshot"],
            "read_s": middle["cut"],
            "read_more_requests": at_cut - at_snapshot,
        }
    )


def _loaded(lake: Lake, names: list[str], other: str, size: Size) -> dict[str, float]:
    taken: list[tuple[float, float]] = []
    with lake.far(), ExitStack() as stack:
        lake.serve(stack, "flusher", names)
        for n in range(INGESTS):
            lake.serve(stack, "ingest", names[n::INGESTS])
        rows_max = int(size.rows_per_s / len(names) * (size.warm_s + size.window_s + 600))
        readers = []
        for name in names[:READERS]:
            reader = FreshReader(lake.uri(name), rows_max, lake.folder / f"{name}.npz", lake.store.options)
            stack.callback(reader.kill)
            readers.append(reader)
        with producing(lake.servers, names, PRODUCER_LINGER_MANY_MS, size.rows, size.rows_per_s) as produced:
            time.sleep(size.warm_s)
            began = time.time()
            time.sleep(size.window_s)
            making, spent = time.time(), _children_s()
            for n in range(CUTS):
                taken.append(lake.command("cut", "make", f"loaded{n}", "--tables", "loaded.*")[:2])
            made, spent = time.time(), _children_s() - spent
            time.sleep(size.window_s)
            computing = time.time()
            for _ in range(CUTS):
                subprocess.run(
                    [sys.executable, "-c", f"import time\nwhile time.process_time() < {spent / CUTS}: pass"], check=True
                )
            computed = time.time()
            lake.check_services()
        first = -(-produced() // len(names))
        found = [reader.end(first) for reader in readers]
        with producing(lake.servers, names, PRODUCER_LINGER_MANY_MS, size.rows, size.rows_per_s):
            time.sleep(size.window_s)
            unread = lake.command("cut", "make", "unread", "--tables", "loaded.*")[:2]
        moved = _moving(lake, names, other, size)
    before, meanwhile, floor = (p99(found, *at) for at in ((began, making), (making, made), (computing, computed)))
    return _told(
        {
            "unread_s": unread[1] - unread[0],
            "loaded_s": max(end - begin for begin, end in taken),
            "fresh_before_p99_ms": before,
            "fresh_meanwhile_p99_ms": meanwhile,
            "fresh_ratio": meanwhile / before,
            "cut_cpu_s": spent / CUTS,
            "floor_s": (computed - computing) / CUTS,
            "fresh_floor_ratio": floor / before,
            "rows_unseen": sum(one.unseen for one in found),
            **moved,
        }
    )


def _children_s() -> float:
    """Seconds of processor time of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _moving(lake: Lake, names: list[str], other: str, size: Size) -> dict[str, float]:
    changing = names[::CHANGING]
    options = {**lake.store.options, "aws_access_key_id": "publisher"}
    cut = {"name": "live", "tables": "loaded.*", "every": f"{size.every_s:g}s"}
    config = lake.config(other, storage={"options": options}, flusher={"cuts": [cut]})
    objects = open_store(ROOT, lake.store.options)

    def published() -> list[tuple[int, int]]:
        """Return for each publication when its positions were asked for, and when it was there (ms since 1970)."""
        found = {paths.parse_moving_cut_version(info.key): info for info in objects.list(paths.MOVING_CUTS)}
        stored = sorted((at[1], info) for at, info in found.items() if at is not None and at[0] == "live")
        return [(json.loads(objects.get(info.key) or b"")["cut"]["asked_ms"], info.modified_ms) for _, info in stored]

    with ExitStack() as stack:
        lake.start(stack, "flusher", [*PROGRAM, "flusher", "run", "-c", config], [other])
        rate = size.rows_per_s * len(changing) // len(names)
        stack.enter_context(producing(lake.servers, changing, PRODUCER_LINGER_MANY_MS, size.rows, rate))
        time.sleep(size.every_s + 5)  # the first publication opens the tables
        lake.store.take()
        began, seconds = time.time(), PUBLICATIONS * size.every_s
        time.sleep(seconds)
        requests = [
            one for one in lake.store.take() if one.by == "publisher" and f"/{other}.lance/" not in f"/{one.key}"
        ]
        ended = time.time()
        lake.check_services()
    there = published()
    moments = np.arange(began * 1000, ended * 1000, 100)
    ages = [now - max(asked for asked, seen in there if seen <= now) for now in moments]
    below = [replace(one, key=_IN_TABLE.sub("", one.key)) for one in requests]
    for kind, found in sorted(by_kind(below, "lake").items()):
        print(f"  {kind}: {found / seconds:.2f}/s", flush=True)
    return {
        "moving_requests_per_s": len(requests) / seconds,
        "moving_age_p99_s": float(np.percentile(ages, 99)) / 1000,
        "moving_every_s": size.every_s,
        "moving_age_over_interval_s": float(np.percentile(ages, 99)) / 1000 - size.every_s,
    }


def _entries(store: SmallS3Process, number: int) -> dict[str, float]:
    entries = [_entry(n) for n in range(number)]
    address = "s3://bucket/entries"
    first = {"format": 1, "write_id": "first", "tables": {}}
    every = {**first, "write_id": "every", "tables": {of.name: of.model_dump(exclude_none=True) for of in entries}}
    objects = open_store(address, store.options)
    for version, content in enumerate((first, every), 1):
        objects.put_if_absent(paths.catalog_tables_version(version), json.dumps(content).encode())
    store.delay(DELAY_S)
    try:
        figures = _catalog("folder", lambda: open_directory(address, store.options), entries[0], number)
        catalog = open_directory(address, store.options)
        catalog.tables()
        store.take()
        catalog.tables()
        figures["folder_requests"] = len(store.take())
    finally:
        store.delay(0.0)
    with PostgresServer() as server:
        url = server.database()
        catalog_there = open_postgres(url, PASSWORD)
        for entry in entries:
            catalog_there.swap_table(entry.name, None, entry)
        figures |= _catalog("postgres", lambda: open_postgres(url, PASSWORD), entries[0], number)
        server.configure("log_statement", "all")
        catalog_there.table(entries[0].name)
        before = _statements(server)
        catalog_there.tables()
        figures["postgres_queries"] = _statements(server) - before
    return _told(figures)


def _statements(server: PostgresServer) -> int:
    text = (server.folder / "log").read_text(errors="replace")
    return text.count("LOG:  execute ") + text.count("LOG:  statement: ")


def _catalog(kind: str, opened: Callable[[], StoredCatalog], entry: TableEntry, number: int) -> dict[str, float]:
    lists, changes = [], []
    for _ in range(RUNS):
        catalog = opened()
        began = time.perf_counter()
        if len(catalog.tables()) != number:
            raise AssertionError("entries are missing")
        lists.append(time.perf_counter() - began)
        before = catalog.table(entry.name)
        new = entry.model_copy(update={"write_id": uuid4().hex})
        changes.append(seconds(lambda: catalog.swap_table(entry.name, before, new)))  # noqa: B023 # at once
    return {f"{kind}_list_s": statistics.median(lists), f"{kind}_change_ms": statistics.median(changes) * 1e3}


def _entry(number: int) -> TableEntry:
    name = f"shop.table{number:05}"
    return TableEntry(
        name=name, uri=f"s3://bucket/lake/{name}.lance", table_uuid=uuid4().hex, topic=name,
        group_id=f"lancewal-{uuid4().hex}", changed_ms=1, write_id=uuid4().hex,
    )  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(SMALL if sys.argv[1:] == ["small"] else Size()), indent=1))
