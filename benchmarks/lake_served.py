"""A process that runs the services of several tables: ``python -m benchmarks.lake_served ingest|flusher SETTINGS...``.

Ingest runs the whole service for each table, in threads: each has its own consumer, log and HTTP server, as in a process of
its own.  The flusher runs one loop for all tables, which takes their turns one after the other.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from lancewal_core.cli.logs import LogLevel, configure_logging
from lancewal_core.process.stop_signals import stop_signals
from lancewal_core.settings.load import Settings, load_settings
from lancewal_ingest.glibc_heap import use_one_heap


def main(service: str, *files: str) -> None:
    configure_logging(LogLevel.INFO)
    settings = [load_settings(Path(file), {}) for file in files]
    with stop_signals() as stopping:
        (_ingest if service == "ingest" else _flush)(settings, stopping)


def _ingest(tables: Sequence[Settings], stopping: Callable[[], bool]) -> None:
    use_one_heap()
    from lancewal_ingest.service.service import serve

    failed: list[BaseException] = []

    def run(settings: Settings) -> None:
        try:
            serve(settings, lambda: bool(failed) or stopping())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def _flush(tables: Sequence[Settings], stopping: Callable[[], bool]) -> None:
    from lancewal_flusher.service.process import FlusherProcess

    with ExitStack() as stack:
        process = FlusherProcess(tables[0], stopping, stack)
        port = process.listen(stack)
        for settings in tables:
            table = process.open_when_it_can(
                partial(Settings.model_copy, settings), process.metrics(settings, port), stack
            )
            if table is None:
                return
            table.watch(stack)
            process.add(table)
        process.work()


if __name__ == "__main__":
    main(*sys.argv[1:])
