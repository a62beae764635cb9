"""What each service and command leaves unloaded, by names of libraries: a start costs what is imported.

Each runs as a process of its own, through the program's ``main``, up to a folder that is not there: all that it imports
to begin with is loaded by then.  Not the time is held, which is the machine's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOWHERE = ("-t", "nowhere/table")
PROGRAM = """
import atexit, sys
atexit.register(lambda: print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr))
sys.argv = ["lancewal", *sys.argv[1:]]
from lancewal_core.cli.program import main
main()
"""
LIBRARIES = {
    "confluent_kafka", "duckdb", "google_crc32c", "lance", "numpy", "obstore", "orjson", "pandas", "polars",
    "prometheus_client", "pyarrow", "pydantic_settings", "pyroaring", "pyspark", "rich", "structlog", "yaml",
}  # fmt: skip
OF_TABLES = {
    "google_crc32c",
    "lance",
    "numpy",
    "obstore",
    "pyarrow",
    "pydantic_settings",
    "pyroaring",
    "structlog",
    "yaml",
}
HELP = {"rich"}


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        (("ingest", "run", *NOWHERE), OF_TABLES | {"confluent_kafka", "orjson", "prometheus_client"}),
        (("flusher", "run", *NOWHERE), OF_TABLES | {"prometheus_client"}),
        (("status", *NOWHERE), OF_TABLES),
        (("read", *NOWHERE), OF_TABLES),
        (("gc", *NOWHERE), OF_TABLES),
        (("config", "show"), {"pydantic_settings", "structlog", "yaml"}),
        (("--help",), HELP),
        (("ingest", "run", "--help"), HELP | {"structlog"}),
        (("flusher", "run", "--help"), HELP | {"structlog"}),
        (("status", "--help"), HELP | {"structlog"}),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_command_loads_what_it_needs(command: tuple[str, ...], allowed: set[str], tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LANCEWAL_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command],
        cwd=tmp_path,
        env={
            **environment,
            "LANCEWAL_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
            "LANCEWAL_HTTP__INGEST_PORT": "0",
            "LANCEWAL_HTTP__FLUSHER_PORT": "0",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    said, found, loaded = done.stderr.rpartition("LOADED ")
    assert found, done.stderr
    assert done.returncode == (2 if NOWHERE[1] in command else 0), said
    assert "table_missing" in said or done.returncode == 0, said
    assert set(loaded.split()) & LIBRARIES <= allowed


def test_a_catalog_is_asked_without_arrow() -> None:
    code = "import sys, lancewal_core.catalog.opened; print(sorted({'lance', 'numpy', 'pyarrow'} & set(sys.modules)))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=240, check=True)
    assert said.stdout.decode().strip() == "[]"
