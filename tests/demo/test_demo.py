"""The command itself, small: real broker, real services, real Spark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lancewal_core.cli.program import run

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

FLIGHTS = 3_000


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-m", "lancewal_core.cli.program", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def processes_naming(text: str) -> list[str]:
    """Command lines of all processes that have ``text`` in them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found


@pytest.mark.spark
@pytest.mark.slow
def test_a_small_run_holds_and_leaves_nothing_running(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with start("--flights", str(FLIGHTS), "--rate", "2000", "--keep", str(folder)) as process:
        output, errors = process.communicate(timeout=500)
    assert process.returncode == 0, f"{output}\n{errors}"
    assert [line.split(":")[0] for line in output.splitlines() if ": " in line and "cells" in line] == ["equal"] * 5
    assert "All comparisons hold." in output
    figures = dict(re.findall(r"^(\S.*?)  +(.*)$", output, re.MULTILINE))
    assert re.match(r"p50 [\d,]+ ms, p95 [\d,]+ ms, p99 [\d,]+ ms", figures["freshness"])
    assert re.match(r"found by vector [\d,]+ ms, by words [\d,]+ ms after they were sent", figures["notices"])
    assert figures["notices"].endswith("among 1,000 merged ones, 10 of them replaced, and 20 unmerged")
    merged = re.search(r"after (\d+) merges of (\d+) generations", figures["table"])
    assert merged is not None
    assert int(merged[1]) >= 1
    assert int(merged[2]) >= 4
    # Not a terminal: no bars, no control characters.
    assert "\x1b" not in errors
    assert processes_naming(str(folder)) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_everything(tmp_path: Path, number: signal.Signals, code: int) -> None:
    folder = tmp_path / "run"
    with start("--flights", str(FLIGHTS), "--rate", "1", "--keep", str(folder)) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "live:" in line:
                break
        else:
            pytest.fail(f"the demonstration ended early: {said}")
        # Broker, ingest, flusher, reader; the command itself names the folder too.
        running = processes_naming(str(folder))
        assert len(running) == 5, running
        process.send_signal(number)
        _, errors = process.communicate(timeout=500)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert processes_naming(str(folder)) == []


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("x")
    assert run(["demo", "--keep", str(tmp_path)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
