"""Spark's Java process is killed under ``lancewal merge --runner spark``, while it starts and while it works: the program
says so, with the exit code of what starting again mends, and the next start goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.spark.test_spark_programs import PROGRAM
from tests.support.flusher_tables import FlusherTable, patch, upserts
from tests.support.spark import spark_environment
from tests.support.spark_gate import Gate

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_DEADLINE_S = 120.0

GATED = """
from pathlib import Path
from lancewal_flusher.tasks import spark_session
start = spark_session.the_session
def the_session():
    session = start()  # before anything imports Lance
    from lancewal_flusher.tasks.spark_runner import SparkRunner
    from tests.support.spark_gate import Gate
    run = SparkRunner.run
    def gated(self, tasks):
        SparkRunner.run = run
        return run(self, [Gate(Path({folder!r})).before(tasks[0]), *tasks[1:]])
    SparkRunner.run = gated
    return session
spark_session.the_session = the_session
"""
"""The first task of the first merge is held where it runs."""


def started(folder: Path, uri: str, before: str = "") -> subprocess.Popen[str]:
    file = folder / "settings.yaml"
    file.write_text(yaml.safe_dump({"table": {"uri": uri}, "http": {"ingest_port": 0, "flusher_port": 0}}))
    conf = "--master local[2] --driver-memory 512m --conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1"
    return subprocess.Popen(
        [sys.executable, "-c", before + PROGRAM, "merge", "--runner", "spark", "--config", file],
        env={
            **spark_environment(folder),
            "PYSPARK_SUBMIT_ARGS": f"{conf} --conf spark.driver.bindAddress=127.0.0.1 pyspark-shell",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(program: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code, and the line that says why."""
    try:
        errors = program.communicate(timeout=_DEADLINE_S)[1]
    finally:
        program.kill()
    said = [line for line in errors.splitlines() if line.startswith("lancewal: ")]
    assert len(said) == 1, errors[-3000:]
    assert not any(line.startswith("Traceback") for line in errors.splitlines())
    return program.returncode, said[0]


def java_of(program: subprocess.Popen[str]) -> int:
    """The Java process that it has started, as soon as it is there."""
    until = time.monotonic() + _DEADLINE_S
    while time.monotonic() < until:
        assert program.poll() is None
        for child in Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split():
            with suppress(OSError):  # it has ended
                if Path(f"/proc/{child}/comm").read_text() == "java\n":
                    return int(child)
        time.sleep(0.005)
    raise AssertionError("no Java process has come")


@pytest.fixture
def table(tmp_path: Path) -> Iterator[FlusherTable]:
    made = FlusherTable(tmp_path)
    made.generation(0, upserts(range(100)))
    made.round()
    made.generation(0, [*upserts(range(90, 110), a=1), patch(3, s="p")])
    yield made
    made.close()


def test_java_is_killed(table: FlusherTable, gate: Gate, tmp_path: Path) -> None:
    """While it starts, and while it works: an executor is held in a task of a merge."""
    program = started(tmp_path, table.uri)
    os.kill(java_of(program), signal.SIGKILL)
    code, said = ended(program)
    assert said.startswith("lancewal: spark_stopped: the Java process of Spark has died")
    assert code == 3
    program = started(tmp_path, table.uri, GATED.format(folder=str(gate.folder)))
    try:
        gate.held()
        os.kill(java_of(program), signal.SIGKILL)
        code, said = ended(program)
    finally:
        program.kill()
        gate.open()
    assert said.startswith("lancewal: spark_stopped: the Spark context of this process has ended")
    assert said.endswith("start the flusher again")
    assert code == 3
    table.round()
    table.check()
