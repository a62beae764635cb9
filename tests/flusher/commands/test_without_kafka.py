"""A flusher that has not Kafka's client does all that asks no broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from lancewal_tables.status.of_kafka import NO_BROKERS
from tests.flusher.service.test_service import tree
from tests.support.flusher_tables import FlusherTable, upserts

WITHOUT = """
import sys
from importlib.util import find_spec

assert find_spec("confluent_kafka") is not None, "or nothing is shown here"
sys.modules["confluent_kafka"] = None
from lancewal_core.cli import program

config = sys.argv[1]
for command in ("merge", "status", "compact", "gc --dry-run", "table show", "table alter --ttl 5s --ttl-column s"):
    print("=", command, program.run([*command.split(), "--config", config]), flush=True)
"""


def test_without_kafkas_client_everything_runs_that_asks_no_broker(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path)
    table.generation(0, upserts(range(10)))
    config = tmp_path / "settings.yaml"
    config.write_text(yaml.safe_dump(tree(table)))
    done = subprocess.run([sys.executable, "-c", WITHOUT, str(config)], text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    codes = dict(line[2:].rsplit(" ", 1) for line in done.stdout.splitlines() if line.startswith("= "))
    # That no lag is known is no problem; the column is none that rows can expire by.
    assert codes == {
        "merge": "0",
        "status": "0",
        "compact": "0",
        "gc --dry-run": "0",
        "table show": "0",
        "table alter --ttl 5s --ttl-column s": "2",
    }
    assert f"not known from here: {NO_BROKERS}" in done.stdout
    table.check()
    table.close()
