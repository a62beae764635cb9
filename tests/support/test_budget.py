"""A run over its budget fails, whether or not its tests pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.budget import Budget

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("minutes", "code"), [("0", 1), ("5", 0)])
def test_budget_decides_the_exit_code(minutes: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "test_passes.py").write_text("def test_passes():\n    pass\n")
    arguments = ["--budget-minutes", minutes, "-p", "no:cacheprovider", "-p", "tests.conftest"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "--rootdir", ROOT, "-c", ROOT / "pyproject.toml", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("more than its budget of 0 minutes" in done.stdout) == (code == 1)


def test_a_run_whose_last_test_ends_too_late_fails() -> None:
    session = SimpleNamespace(exitstatus=pytest.ExitCode.OK)
    Budget(5).pytest_sessionfinish(cast("pytest.Session", session))
    assert session.exitstatus == pytest.ExitCode.OK
    Budget(0).pytest_sessionfinish(cast("pytest.Session", session))
    assert session.exitstatus == pytest.ExitCode.TESTS_FAILED
