"""Hostile payloads, decoded in a process of their own: it prints what became of each, and what it cost."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lancewal_demo.stack.resident_memory import resident_bytes
from lancewal_ingest.decode.framed.payloads import Payloads
from lancewal_ingest.decode.framed.typed import TypedPayloads

ROOT = Path(__file__).resolve().parents[4]
CPU_S = 120
"""Limit of the process: far above what all cases need, far below what one needs that is not bounded."""
MEMORY = 64_000_000


class Hostile(NamedTuple):
    """A payload, its decoder, and whether its second column is the hostile one."""

    name: str
    of: TypedPayloads
    data: bytes
    is_row: bool


def decode_all(cases: Iterable[Hostile]) -> None:
    """Print a line about each case."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    for case in cases:
        payloads = Payloads.of([case.data])
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")
        before, begin = resident_bytes("VmRSS"), time.process_time()
        found = case.of.decode(payloads, np.zeros(1, np.uint8))
        took = time.process_time() - begin
        kind = found.refused[0].kind if found.refused else None
        cells = found.parts[0].columns[1].nbytes if case.is_row and found.parts else 0
        line = {"name": case.name, "kind": kind, "seconds": took, "bytes": len(case.data), "cells": cells}
        print(json.dumps({**line, "peak": resident_bytes("VmHWM") - before}), flush=True)


def outcomes_of(module: str) -> dict[str, dict[str, Any]]:
    """Run a module that calls ``decode_all``, and return its lines by the cases' names."""
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * CPU_S, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
