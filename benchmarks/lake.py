"""Many tables of a catalog for benchmarks, at a store and a broker, each with a topic of its own.

``serve`` starts services for some of them.  A service of lancewal works on one table, so twenty tables have forty processes
in production.  Here several tables share a process (``benchmarks.lake_served``): two cores could not hold more.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import lance
import numpy as np
import yaml

from benchmarks.distance import DELAY_S
from benchmarks.ingest import produce_all
from benchmarks.memory_source import MemorySource
from benchmarks.tables import MemoryIngest
from benchmarks.workload import COLUMNS, PRIMARY_KEY, REGION_KEY, SCHEMA, table_rows, upserts
from lancewal_core.open import Address
from lancewal_core.settings.load import load_settings
from lancewal_demo.stack import Process
from lancewal_flusher.service.service import run_once
from lancewal_tables.catalog.making import make_named
from lancewal_tables.define.create import create_table
from tests.support.small_s3.child import SmallS3Process

PARTITIONS = 4
ROOT = "s3://bucket/lake"
PROGRAM = (sys.executable, "-m", "lancewal_core.cli.program")
_START_S = 120.0
_SERVES = {"ingest": ("partition_opened", PARTITIONS), "flusher": ("service_started", 1)}
"""Log event that a service writes while it begins, and how often for a table."""


class Lake:
    """See the module docstring.  ``folder`` has settings files and logs."""

    def __init__(
        self,
        folder: Path,
        store: SmallS3Process,
        servers: str,
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        """``catalog``: its settings, beside the root."""
        self.folder, self.store, self.servers = folder, store, servers
        self._catalog = {"root": ROOT, **(catalog or {})}
        self._services: list[Process] = []

    # -- tables ---------------------------------------------------------------------------------------------------

    def config(self, name: str = "", **sections: object) -> Path:
        """Write the settings file of a table, or of commands about all tables, and return it."""
        settings: dict[str, object] = {
            "catalog": self._catalog,
            "storage": {"options": self.store.options},
            "kafka": {"bootstrap_servers": self.servers},
            "http": {"ingest_port": 0, "flusher_port": 0},
            **sections,
        }
        if name:
            keys = {"primary_key": list(PRIMARY_KEY), "region_key": list(REGION_KEY)}
            table = {"uri": self.uri(name), "topic": name, "columns": COLUMNS, "on_bad_record": "stop", **keys}
            settings["table"] = table
        path = self.folder / f"{name or 'lake'}.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    def uri(self, name: str) -> str:
        return f"{ROOT}/{name}.lance"

    def create(self, names: Sequence[str], rows: int) -> None:
        """Make tables of so many merged rows.  Their topics exist, and are empty."""
        for name in names:
            settings = load_settings(self.config(name), {})
            make_named(create_table, settings, name, lambda _: None)
            lance.write_dataset(
                table_rows(np.arange(rows), 0), self.uri(name), mode="append", schema=SCHEMA,
                storage_options=self.store.options,
            )  # fmt: skip

    def fill(self, name: str, records: int, keys: int) -> None:
        """Put upserts into a table's topic, ingest and merge them, and end the log: nobody works on the table then."""
        address = Address(self.uri(name), self.store.options)
        contract, messages = address.contract(), list(upserts(records, keys, 1))
        produce_all(self.servers, name, iter(messages))
        ingest = MemoryIngest(address, contract, MemorySource(contract.regions), records, records)
        ingest.feed(messages)
        ingest.worker.drain(60)
        run_once(load_settings(self.config(name), {}))

    # -- services -------------------------------------------------------------------------------------------------

    def serve(self, stack: ExitStack, service: str, names: Sequence[str], **sections: object) -> None:
        """Start a process that serves these tables, and wait until they are open.  ``stack`` ends it.

        ``sections``: further settings."""
        configs = [self.config(name, **sections) for name in names]
        command: list[str | Path] = [sys.executable, "-m", "benchmarks.lake_served", service, *configs]
        self.start(stack, service, command, names)

    def start(self, stack: ExitStack, service: str, command: Sequence[str | Path], names: Sequence[str]) -> None:
        """Start a process, and wait until these tables are open in it.  ``stack`` ends it."""
        log, (event, each) = self.folder / f"{service}-{names[0]}.log", _SERVES[service]
        process = Process(command, log)
        stack.callback(process.stop, 60)
        self._services.append(process)
        process.wait_until(
            lambda: log.read_text().count(f'"{event}"') >= each * len(names),
            f"{service} of {len(names)} tables",
            _START_S,
        )

    def check_services(self) -> None:
        """Raise if a service has ended by itself."""
        for process in self._services:
            if process.exit_code is not None:
                raise RuntimeError(f"exit code {process.exit_code}: {process.log.read_text()[-1500:]}")

    @contextmanager
    def far(self) -> Iterator[None]:
        """Have the store 30 ms away inside ``with``."""
        self.store.delay(DELAY_S)
        try:
            yield
        finally:
            self.store.delay(0.0)

    def command(self, *words: str) -> tuple[float, float, str]:
        """Run a command of lancewal; return the times of its begin and end in seconds since 1970, and its output."""
        began = time.time()
        done = subprocess.run([*PROGRAM, *words, "-c", str(self.config())], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"lancewal {' '.join(words)}: {done.stdout}{done.stderr}")
        return began, time.time(), done.stdout
