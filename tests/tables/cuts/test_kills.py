"""SIGKILL at each step of making and dropping a cut: afterwards there is no cut, or a whole one, and making it again leaves
nothing over but what garbage collection drops a day later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.process.clock import SystemClock
from lancewal_core.table.snapshots import cut_of, is_unfinished
from lancewal_flusher.garbage.snapshots import BEGUN_MAX_MS, drop_overdue
from tests.tables.cuts.lake import Lake

PROGRAM = "import sys; from lancewal_core.cli.program import run; sys.exit(run(sys.argv[1:]))"
MAKE = ("cut", "make", "june", "--tables", "shop.*", "--up-to", "durable")
DROP = ("cut", "drop", "june", "--yes")


@pytest.fixture
def lake(tmp_path: Path, seed: int) -> Iterator[Lake]:
    made = Lake(tmp_path, seed=seed)
    made.produce(30)
    yield made
    made.close()


def killed(lake: Lake, failpoint: str, *command: str) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LANCEWAL_TESTING": "1",
        "LANCEWAL_FAILPOINT": f"{failpoint}=kill",
    }
    words = [sys.executable, "-c", PROGRAM, *command, "-c", lake.config()]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def branches(lake: Lake) -> list[str]:
    return [branch.name for table in lake.of.values() for branch in table.table.branches() if cut_of(branch)]


@pytest.mark.parametrize("snapshots", [1, 2])
def test_killed_before_the_record_there_is_no_cut(lake: Lake, snapshots: int) -> None:
    killed(lake, f"cut.snapshot:after:{snapshots}", *MAKE)
    assert lake.catalog.cuts() == {}
    assert len(branches(lake)) >= snapshots
    cut = lake.make("june")
    for table in lake.of.values():  # a snapshot that was not finished may still be made: it goes a day later
        stay = [branch.name for branch in table.table.branches() if not is_unfinished(branch)]
        assert len(stay) == 1
        gone = drop_overdue(table.table, SystemClock().now_ms() + BEGUN_MAX_MS + 1)
        assert stay == [branch.name for branch in table.table.branches()], gone
    assert branches(lake) == [of.snapshot for of in cut.tables.values()]
    lake.check(cut)


def test_killed_after_the_record_the_cut_is_whole_and_killed_while_it_is_dropped_it_is_gone(lake: Lake) -> None:
    killed(lake, "cut.put:after", *MAKE)
    cut = lake.catalog.cut("june")
    assert cut is not None
    lake.produce(10)
    lake.check(cut)
    killed(lake, "cut.drop:after", *DROP)
    assert lake.catalog.cuts() == {}
    assert len(branches(lake)) == 2
    again = lake.make("june")
    assert branches(lake) == [of.snapshot for of in again.tables.values()]
    lake.check(again)
