"""The whole deployment under many schedules: crashes, frozen processes, lost replies, late puts, stale listings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lancewal_core.testing.faults import Rates
from tests.simulation.kinds import KINDS
from tests.simulation.many import run_many
from tests.simulation.run import run
from tests.simulation.world import Settings

SCHEDULES = 2_000
SWITCHES = 300
"""At least so many in each."""
SEEDS = {"small": 600, "merges": 350, "ingest": 400, "readers": 350, "compaction": 100, "lossy": 350, "whole": 16}

CALM = Settings(records=40, chaos=False, user=False, rates=Rates(0, 0, 0, 0, 0))


@pytest.mark.slow
def test_many_schedules() -> None:
    totals = run_many([(kind, range(count)) for kind, count in SEEDS.items()], SWITCHES)
    print(totals.text())
    assert not totals.failures, totals.failures[0]
    assert len(totals.traces) >= SCHEDULES
    for event in ("strong read", "eventual read", "read again", "merge", "merge rebased", "trims", "objects deleted",
                  "chaos: crash", "chaos: pause", "chaos: rebalance", "failed open: OwnershipLost", "user: append",
                  "user: clean up", "user: compact", "user: lose files", "compaction",
                  "compaction refused", "index extended", "drained"):  # fmt: skip
        assert totals.counts[event] > 0, event


def test_a_seed_repeats_its_schedule_in_another_process() -> None:
    here = run(7, KINDS["small"])
    code = "from tests.simulation.run import run; from tests.simulation.kinds import KINDS; "
    code += "r = run(7, KINDS['small']); print(r.switches, r.trace)"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.split() == [str(here.switches), str(here.trace)]
    assert run(8, KINDS["small"]).trace != here.trace


def test_without_faults_everything_comes_to_rest() -> None:
    report = run(1, CALM)
    assert report.counts["strong read"] > 0
    assert not [event for event in report.counts if "failed" in event or "restarts" in event]
