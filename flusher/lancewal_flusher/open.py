"""A flusher's context, made from the settings: table, store, key index, and where tasks run."""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.parts import MappedParts
from lancewal_core.process.clock import Clock, SystemClock
from lancewal_core.process.lance_threads import use_all_cores
from lancewal_core.process.tasks import Tasks, ThreadTasks
from lancewal_core.region.indexes import RegionIndexes
from lancewal_core.settings.load import Settings
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.obstore import local_folder, open_store
from lancewal_core.table.checks import check_place, check_settings, check_table
from lancewal_core.table.contract import read_contract
from lancewal_core.table.lance.base_paths import BasePaths
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.watermarks import Watermarks
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.tasks.runner import Runner, ThreadRunner

KEY_PARTS_BYTES_MAX = 512 << 20
"""Disk that parts of the key index from an object store may take: those of about 30 million rows.  The chart gives a pod's
temporary folder twice that."""


_KEYS_FOLDER = "lancewal-keys-"


def open_context(settings: Settings, stack: ExitStack, *, on_threads: bool = False) -> FlusherContext:
    """Step 1: everything that has an effect, checked; ``stack`` closes it.

    ``on_threads``: whatever the settings say, for what neither merges nor compacts: nothing waits for a Spark session then.
    """
    settings.need("table.uri")
    use_all_cores()
    clock = SystemClock()
    uri, options = settings.table.uri, settings.store.options
    store = open_store(uri, options)
    contract = read_contract(store, uri)
    check_place(uri, contract)
    check_settings(settings, contract)
    table = LanceTable(uri, options, settings.table.base_paths)
    check_table(table.newest(), contract)
    tasks, computing = ThreadTasks(), ThreadTasks(io_threads=settings.flusher.threads, caller_helps=True)
    stack.callback(tasks.close)
    stack.callback(computing.close)
    runner = "threads" if on_threads else settings.flusher.runner
    return FlusherContext(
        store=store,
        table=table,
        indexes=RegionIndexes(store, clock),
        watermarks=Watermarks(store, table),
        keys=_key_index(store, uri, clock, computing, stack),
        runner=ThreadRunner(table, computing, clock)
        if runner == "threads"
        else _spark_runner(uri, store, tasks, clock, settings.table.base_paths),
        tasks=tasks,
        clock=clock,
        contract=contract,
        new_id=lambda: uuid.uuid4().hex,
    )


def _key_index(store: ObjectStore, uri: str, clock: Clock, tasks: Tasks, stack: ExitStack) -> KeyIndex:
    for old in Path(gettempdir()).glob(f"{_KEYS_FOLDER}{os.getpid()}-*"):
        # Of a process that was killed: a container's first process has the same number again.
        shutil.rmtree(old, ignore_errors=True)
    folder = Path(stack.enter_context(TemporaryDirectory(prefix=f"{_KEYS_FOLDER}{os.getpid()}-")))
    parts = MappedParts(store, local_folder(uri), folder, KEY_PARTS_BYTES_MAX)
    return KeyIndex(KeyCatalogs(store, clock), parts, tasks)


def _spark_runner(uri: str, store: ObjectStore, tasks: Tasks, clock: Clock, base_paths: BasePaths) -> Runner:
    from lancewal_flusher.tasks.spark_runner import SparkRunner
    from lancewal_flusher.tasks.spark_session import the_session

    the_session()  # what cannot work is said at the start
    return SparkRunner(the_session, uri, store, tasks, clock, base_paths)
