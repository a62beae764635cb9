"""The simulation alone takes nearly every branch of the protocol."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.simulation.coverage_run import MODULES


def test_nearly_every_branch_of_the_protocol_is_taken() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.simulation.coverage_run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    percent = json.loads(done.stdout)
    assert set(percent) == set(MODULES)
    assert {module: taken for module, taken in percent.items() if taken < 90} == {}
