"""``python -m tests.simulation.coverage_run``: branch coverage of the protocol's modules by the simulation alone, as JSON.

Scenarios, accidents, and some random schedules, in this process.  Branches that the type checker proves unreachable
(``assert_never``) do not count.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import coverage

MODULES = (
    "lancewal_ingest.open_region",
    "lancewal_ingest.partitions",
    "lancewal_ingest.append",
    "lancewal_ingest.seal",
    "lancewal_flusher.merge",
    "lancewal_flusher.merge_stock",
    "lancewal_flusher.commit",
    "lancewal_flusher.finish",
    "lancewal_flusher.foreign_rows",
    "lancewal_flusher.garbage",
    "lancewal_flusher.gc",
    "lancewal_flusher.history",
    "lancewal_reader.plan",
)
"""Open, append, seal, merge (with commit and finish), trim (with history), read plan."""
SCHEDULES = {"small": 24, "merges": 12, "lossy": 8, "readers": 6, "swarm": 30, "slow readers": 1}
"""Seeds from 0 on, by kind."""


def _simulate() -> None:
    from tests.simulation.accidents import ACCIDENTS
    from tests.simulation.kinds import KINDS
    from tests.simulation.run import run
    from tests.simulation.scenarios import SCENARIOS

    for play in [*SCENARIOS, *ACCIDENTS]:
        play()
    for kind, count in SCHEDULES.items():
        for seed in range(count):
            run(seed, KINDS[kind])


def measure() -> dict[str, float]:
    """Percent of branches taken, by module."""
    measured = coverage.Coverage(
        data_file=None, branch=True, include=[f"*/{m.replace('.', '/')}.py" for m in MODULES], config_file=False
    )
    measured.exclude("case _:")
    measured.exclude("assert_never")
    measured.start()
    _simulate()
    measured.stop()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        measured.json_report(outfile=str(report))
        files = json.loads(report.read_text())["files"]
    found = {}
    for module in MODULES:
        (summary,) = [f["summary"] for name, f in files.items() if name.endswith(f"{module.replace('.', '/')}.py")]
        found[module] = 100.0 * summary["covered_branches"] / summary["num_branches"]
    return found


if __name__ == "__main__":
    json.dump(measure(), sys.stdout, indent=1)
