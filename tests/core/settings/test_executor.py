"""How a Python process of Spark's starts its work."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc
from lancewal_core.settings.executor import start_worker
start_worker()
frozen = gc.get_freeze_count()
later = [[] for _ in range(1000)]
start_worker()
print(frozen, gc.get_freeze_count())
"""


def test_what_is_loaded_by_the_first_task_is_not_looked_through_again() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True)
    frozen, at_the_end = map(int, done.stdout.split())
    assert frozen > 1_000
    assert at_the_end <= frozen  # what comes later is collected as ever
