"""The whole deployment under many schedules: crashes, frozen processes, lost replies, late puts, stale listings.

A run plays one in six of the schedules of each kind; ``--every-case`` plays all, as ``dev.py soak every-case`` does.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest

from tests.simulation.kinds import KINDS
from tests.simulation.many import run_many
from tests.simulation.run import run
from tests.simulation.settings import Settings
from tests.simulation.swarm import PLACES
from tests.support.budget import QUICK_SCHEDULES
from tests.twins.faults import Rates

SCHEDULES = 260
PLAYED_EACH = 6
SWITCHES = 300
"""At least so many in each."""
SEEDS = {
    "small": 20, "merges": 12, "ingest": 12, "readers": 16, "compaction": 12, "lossy": 16, "whole": 4,
    "swarm": 60, "slow members": 12, "slow flushers": 12, "slow readers": 12, "long lives": 8, "restores": 12,
    "lost listings": 7, "deaf members": 5, "quiet regions": 2, "lost segments": 8, "snapshots": 12,
    "slow seals": 8, "bundles": 6, "points": 20, "columns": 15, "subscriptions": 6, "expiry": 6, "feeds": 6, "cuts": 6,
}  # fmt: skip
"""Seeds of each kind.  More of them find nothing that a scenario does not find in every run; ``python -m tests.simulation``
runs as many as there is time for."""

EVENTS = [
    "strong read", "eventual read", "read again", "read again by another version", "merge", "merge rebased",
    "merge put off", "follow-up",
    "trims", "objects deleted", "history pages", "page versions deleted", "version expired",
    "chaos: crash", "chaos: pause",
    "chaos: expel", "chaos: rebalance", "chaos: retention", "chaos: warp", "failed open: OwnershipLost",
    "snapshot made", "snapshot made of the past", "snapshot read", "snapshot read: it is gone", "snapshot dropped",
    "read at positions", "read at timestamp", "read at record-time", "read at version", "read of what is not there yet",
    "read at timestamp: VersionGone", "read at least a receipt",
    "read at least", "read at least, awaited", "read at least: TokenTimeout", "read at least: TokenRejected",
    "read that may be stale",
    "cut made", "cut read", "cut dropped", "moving cut published", "moving cut read",
    "subscription created", "subscription read, behind", "subscription committed", "subscription is over",
    "compaction", "compaction refused", "index extended",
    "user: append", "user: append to a shared key", "user: clean up", "user: compact", "user: lose files",
    "user: restore", "read: TableRestored", "read of a restored table", "round: TableRestored", "operator: pause ingest",
    "operator: pause for a while flusher", "ingest turns, paused", "flusher waits, paused", "drained",
    "changes net", "changes commits", "changes all", "changes all again", "changes all folded to net",
    "changes commits folded to net", "changes net of adjoining ranges", "expiry", "user: delete rows",
    "segment lost", "failed open: a segment is lost", "change of columns", "columns: default", "columns: forget",
    "columns: add members", "widening: Widened", "round: ContractMismatch",
]  # fmt: skip
"""What must have happened, in some schedule."""
SELDOM = {
    "read at least", "subscription is over", "subscription committed",
    "follow-up", "compaction", "compaction refused", "index extended", "user: restore", "read: TableRestored",
    "read of a restored table", "round: TableRestored", "operator: pause for a while flusher", "ingest turns, paused",
    "flusher waits, paused", "failed open: a segment is lost", "read at least: TokenRejected", "columns: default",
    "columns: forget", "columns: add members", "widening: Widened", "round: ContractMismatch",
}  # fmt: skip
"""Events of a few schedules: those of ``--every-case`` have them.  Accidents have them in every run, and
``tests/reader/plan/test_at_least.py`` has the reads."""

CALM = Settings(records=40, chaos={}, user={}, rates=Rates(0, 0, 0, 0, 0))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_schedules(pytestconfig: pytest.Config, *, quick: bool) -> None:
    every = pytestconfig.getoption("--every-case")
    each = QUICK_SCHEDULES if quick else 1 if every else PLAYED_EACH
    totals = run_many([(kind, range(math.ceil(count / each))) for kind, count in SEEDS.items()], SWITCHES)
    print(totals.text())
    assert not totals.failures, totals.failures[0]
    if quick:
        return
    assert len(totals.traces) >= SCHEDULES // each
    missing = [event for event in EVENTS if not totals.counts[event] and (every or event not in SELDOM)]
    assert not missing
    died = [place for place in PLACES if totals.counts[f"crash at {place}"]]
    # Few schedules reach few places, and each new place draws others.  Somebody dies at each of them in test_crash_points.
    assert len(died) > (len(PLACES) / 4 if every else 0)


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
