"""A run over its budget fails, whether or not its tests pass."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import dev
from tests.support import budget
from tests.support.budget import LONG, Budget, left_in

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


def test_the_quick_run_takes_few_cases_of_long_tests_and_all_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "LONG", {"a/test_x.py": ["test_many", "test_one", "C::test_of_class"]})
    short = ["tests/a/test_x.py::test_many_more", *(f"tests/b/test_x.py::test_many[{n}]" for n in range(3))]
    many = [f"tests/a/test_x.py::test_many[{n}-[a]]" for n in range(budget.CASES_EACH + 2)]
    names = [*many, "tests/a/test_x.py::test_one", *short, "tests/a/test_x.py::C::test_of_class"]
    assert left_in(names) == {many[0], many[budget.CASES_EACH], *short}


def test_what_is_said_to_be_long_exists() -> None:
    wrong = []
    for file, names in LONG.items():
        source = (ROOT / "tests" / file).read_text() if (ROOT / "tests" / file).exists() else ""
        for name in names:
            words = set(name.split("::")) - {"runTest"}
            defined = all(re.search(rf"^ *(def |class )?{word}\b", source, re.MULTILINE) for word in words)
            wrong += [] if defined else [f"{file}::{name}"]
    assert wrong == []


def test_a_run_leaves_what_its_tests_took(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text("import time\ndef test_a():\n    pass\ndef test_b():\n    time.sleep(0.1)\n")
    arguments = [
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.conftest",
        "--durations-file",
        str(tmp_path / "of" / "a run.json"),
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        *arguments,
        "--rootdir",
        str(ROOT),
        "-c",
        str(ROOT / "pyproject.toml"),
        str(tmp_path),
    ]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    taken = json.loads((tmp_path / "of" / "a run.json").read_text())
    assert [name.rpartition("::")[2] for name in taken] == ["test_b", "test_a"]
    assert all(figures["seconds"] >= 0 and figures["cpu_seconds"] >= 0 for figures in taken.values())
    assert taken[next(iter(taken))]["seconds"] >= 0.1


def test_the_folders_of_the_halves_exist() -> None:
    """Without one of them pytest would run nothing of this half."""
    assert [folder for folder in (*dev.HALF, *dev.SERVERS_HALF) if not (ROOT / folder).is_dir()] == []
