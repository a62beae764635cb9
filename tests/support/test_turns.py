"""Cases that take turns, as a pytest of its own collects them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.mark.in_turns("a", "b", each=2)
@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", "xy")
def test_two(a, b): pass

@pytest.mark.in_turns("a", each=3)
@pytest.mark.parametrize("a", range(3))
def test_one(a): pass

@pytest.mark.parametrize("a", range(3))
def test_others(a): pass

@pytest.mark.in_turns
def test_whole(): pass
"""


@pytest.mark.parametrize(
    ("options", "twos", "ones", "wholes"), [((), ["x-0", "x-2", "y-1"], 1, 0), (("--every-case",), 6, 3, 1)]
)
def test_a_run_has_some_and_every_case_all(
    tmp_path: Path, options: tuple[str, ...], twos: list[str] | int, ones: int, wholes: int
) -> None:
    file = tmp_path / "test_turns.py"
    file.write_text(TESTS)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        ROOT / "pyproject.toml",
        f"--rootdir={ROOT}",
        "-p",
        "no:cacheprovider",
    ]
    command += ["--confcutdir", ROOT, "-p", "tests.conftest", "-q", "--collect-only", *options, file]
    said = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False).stdout
    found = [line.partition("::")[2] for line in said.splitlines() if "::" in line]
    two = sorted(name[len("test_two[") : -1] for name in found if name.startswith("test_two"))
    assert (two if isinstance(twos, list) else len(two)) == twos
    assert len([name for name in found if name.startswith("test_one")]) == ones
    assert len([name for name in found if name.startswith("test_others")]) == 3
    assert found.count("test_whole") == wholes
