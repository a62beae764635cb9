"""Hostile datums cost bounded memory and time, and never the process: ``hostile`` decodes them in one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.decode.avro.hostile import CPU_S, cases

ROOT = Path(__file__).resolve().parents[4]
CASES = {case.name: case for case in cases()}
MEMORY = 64_000_000


@cache
def outcomes() -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "tests.ingest.decode.avro.hostile"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * CPU_S, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}


def test_every_case_is_decided() -> None:
    assert outcomes().keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_datum_is_decided_and_costs_little_memory(name: str) -> None:
    outcome, case = outcomes()[name], CASES[name]
    assert outcome["kind"] == case.kind
    assert outcome["peak"] <= 4 * outcome["bytes"] + MEMORY
