"""The whole deployment under many schedules: crashes, frozen processes, lost replies, late puts, stale listings."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from lancewal_core.testing.faults import Rates
from tests.simulation.run import Report, run
from tests.simulation.world import Settings

INGEST_ONLY = Settings(flushers=0, collectors=0, readers=0, user=False)
CALM = Settings(records=40, chaos=False, user=False, rates=Rates(0, 0, 0, 0, 0))


def _run(count: int, first_seed: int, settings: Settings) -> list[Report]:
    """Run so many seeds one after the other: the same ones on every machine."""
    return [run(seed, settings) for seed in range(first_seed, first_seed + count)]


def _total(reports: list[Report], event: str) -> int:
    return sum(report.counts.get(event, 0) for report in reports)


def test_whole_deployment(sim_seed: int | None) -> None:
    if sim_seed is not None:
        run(sim_seed)
        return
    reports = _run(45, 0, Settings())
    assert len({report.trace for report in reports}) == len(reports)
    for event in ("strong read", "eventual read", "read again", "merge", "merge rebased", "trims",
                  "objects deleted", "chaos: crash", "chaos: pause", "user: append", "user: clean up"):  # fmt: skip
        assert _total(reports, event) > 0, event


def test_ingest_alone_with_many_members(sim_seed: int | None) -> None:
    settings = replace(INGEST_ONLY, members=4, partitions=4, records=150)
    if sim_seed is not None:
        run(sim_seed, settings)
        return
    reports = _run(40, 11_010, settings)
    for event in ("chaos: crash", "chaos: pause", "failed open: OwnershipLost"):
        assert _total(reports, event) > 0, event


def test_a_seed_repeats_its_schedule_in_another_process() -> None:
    settings = Settings(records=40)
    here = run(7, settings)
    code = "from tests.simulation.run import run; from tests.simulation.world import Settings; "
    code += "r = run(7, Settings(records=40)); print(r.switches, r.trace)"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.split() == [str(here.switches), str(here.trace)]
    assert run(8, settings).trace != here.trace


def test_without_faults_everything_comes_to_rest() -> None:
    report = run(1, CALM)
    assert report.counts["strong read"] > 0
    assert not [event for event in report.counts if "failed" in event or "restarts" in event]
