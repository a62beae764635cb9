"""The simulation alone takes nearly every branch of the protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.simulation.coverage_run import MODULES

_LEAST = 90
"""Percent of a module's branches.  Where nothing is wrong, all are at 93 or more (3.11.2, which sees the fewest)."""


def test_nearly_every_branch_of_the_protocol_is_taken() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.simulation.coverage_run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["percent"]) == set(MODULES)
    few = {module: taken for module, taken in found["percent"].items() if taken < _LEAST}
    assert not few, "\n".join(
        [
            f"fewer than {_LEAST} % of the branches were taken, on {found['machine']}",
            *(f"{module}: {taken:.1f} %, not taken {found['missing'][module]}" for module, taken in few.items()),
            "hash of the calls of each play, to compare with another machine's:",
            *(f"  {trace:08x} {play}" for play, trace in found["traces"].items()),
        ]
    )
