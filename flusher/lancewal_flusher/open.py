"""Open a table for the flusher: make a ``FlusherContext`` from the settings."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import NamedTuple

from lancewal_core.keys.catalog import KeyCatalogs
from lancewal_core.keys.index import KeyIndex
from lancewal_core.keys.parts import MappedParts
from lancewal_core.open import Address, open_by
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import Tasks, ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import local_folder
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.table.lance.row_files import use_all_cores
from lancewal_flusher.context import FlusherContext
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.tasks.runner import Runner, ThreadRunner

KEY_PARTS_BYTES_MAX = 512 << 20
"""Largest number of bytes on disk for cached parts of the key index that a process has fetched from an object store.
They are enough for about 30 million rows.  The chart gives a pod's temporary folder twice as many bytes."""


_KEYS_FOLDER = "lancewal-keys-"
_in_use: set[Path] = set()
"""Cache folders on disk that this process uses now; it may have several tables open."""
_making = threading.Lock()
"""Lock that is held from before a folder is made until it is in ``_in_use``."""


class Threads(NamedTuple):
    """Thread pools that all tables of a process share: ``tasks`` is for waiting on stores, ``computing`` for
    computation.
    """

    tasks: Tasks
    computing: Tasks

    @staticmethod
    def of(settings: Settings, stack: ExitStack) -> Threads:
        """Start the pools with the numbers of threads in the settings.  ``stack`` closes them."""
        use_all_cores()
        tasks, computing = ThreadTasks(), ThreadTasks(io_threads=settings.flusher.threads, caller_helps=True)
        stack.callback(tasks.close)
        stack.callback(computing.close)
        return Threads(tasks, computing)


@contextmanager
def open_context(settings: Settings, *, on_threads: bool = False) -> Iterator[FlusherContext]:
    """Open the table for a command, with its own threads.  ``on_threads``: as in ``open_on``."""
    with ExitStack() as stack:
        yield open_on(settings, Threads.of(settings, stack), stack, on_threads=on_threads)


def open_on(
    settings: Settings,
    threads: Threads,
    stack: ExitStack,
    *,
    on_threads: bool = False,
    store: ObjectStore | None = None,
) -> FlusherContext:
    """Open and check the table, and return its context.  ``stack`` closes the context.  ``store``: as in ``open_by``.

    ``on_threads``: run tasks on threads, whatever the settings say.  A caller that neither merges nor compacts then
    needs no Spark session.
    """
    tasks, computing = threads
    opened = open_by(settings, tasks, SystemClock(), store)
    runner = "threads" if on_threads else settings.flusher.runner
    events = FlusherEvents(table=Address.of(settings).name_of(opened.contract))
    return FlusherContext(
        *opened.parts,
        keys=_key_index(opened, settings.table.uri, computing, stack),
        runner=ThreadRunner(
            opened.table, computing, opened.clock, events, waiting_tasks(settings.table.uri, tasks, computing)
        )
        if runner == "threads"
        else _spark_runner(opened, Address.of(settings), events),
        new_id=lambda: uuid.uuid4().hex,
        events=events,
    )


def waiting_tasks(uri: str, tasks: Tasks, computing: Tasks) -> Tasks:
    """Return the pool for tasks that access the store.  With a local folder this is ``computing``, because nothing
    waits, and more threads than cores would be slower.
    """
    return tasks if local_folder(uri) is None else computing


def _key_index(opened: OpenedTable, uri: str, computing: Tasks, stack: ExitStack) -> KeyIndex:
    with _making:
        for old in Path(gettempdir()).glob(f"{_KEYS_FOLDER}{os.getpid()}-*"):
            # Of a process that was killed: a container's first process has the same number again.
            if old not in _in_use:
                shutil.rmtree(old, ignore_errors=True)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix=f"{_KEYS_FOLDER}{os.getpid()}-")))
        _in_use.add(folder)
    stack.callback(_in_use.discard, folder)
    parts = MappedParts(opened.store, local_folder(uri), folder, KEY_PARTS_BYTES_MAX)
    return KeyIndex(KeyCatalogs(opened.store, opened.clock, opened.contract.making), parts, computing)


def _spark_runner(opened: OpenedTable, address: Address, events: FlusherEvents) -> Runner:
    from lancewal_flusher.tasks.spark_runner import SparkRunner
    from lancewal_flusher.tasks.spark_session import the_session

    the_session()  # what cannot work is said at the start
    return SparkRunner(
        the_session, address.uri, opened.store, opened.tasks, opened.clock, address.base_paths, events=events
    )
