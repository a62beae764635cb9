"""What is said where no Spark session can be had; sessions themselves: ``tests/spark``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lancewal_core.errors import InvalidSettings
from lancewal_flusher.commands.flusher import SubmitTurn, spark_script
from lancewal_flusher.tasks.spark_runner import _reason
from lancewal_flusher.tasks.spark_session import the_session

JAVA_TEXT = """An error occurred while calling o55.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times
Traceback (most recent call last):
  File "worker.py", line 1, in main
ModuleNotFoundError: No module named 'lancewal_flusher'

JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure
	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1)
"""


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(InvalidSettings, match=r"pyspark cannot be loaded.*install lancewal\[flusher,spark\]"):
        the_session()


@pytest.mark.parametrize(
    ("script", "kind", "code"),
    [("kill -9 $$", "spark_stopped", 3), ("exit 137", "spark_stopped", 3), ("exit 1", "invalid_settings", 2)],
    ids=["killed", "killed under the script", "refused"],
)
def test_java_ends_while_it_starts(script: str, kind: str, code: int, tmp_path: Path) -> None:
    """Killed, starting again helps; ended by itself, it was told something that it does not take."""
    (tmp_path / "bin").mkdir()
    submit = tmp_path / "bin" / "spark-submit"
    submit.write_text(f"#!/bin/bash\n{script}\n")
    submit.chmod(0o755)
    program = """
import sys
from lancewal_core.cli import program as cli
sys.exit(cli.run(["flusher", "run", "--runner", "spark"]))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SPARK_HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert f"lancewal: {kind}: " in ended.stderr
    assert ended.returncode == code


def test_a_java_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    submit = tmp_path / "bin" / "spark-submit"
    submit.write_text("#!/bin/bash\nexit 1\n")
    submit.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SPARK_HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", "import lancewal.spark as s; s.session()"],
        env={**environment, "JAVA_HOME": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    home = tmp_path / "none"
    wanted = f"no Spark session can be started: Java was not found in JAVA_HOME={home}; Spark needs Java 17 or 21"
    assert wanted in ended.stderr.splitlines()[-1]


def test_the_reason_is_pythons_where_a_task_raised() -> None:
    assert _reason(RuntimeError(JAVA_TEXT)) == "ModuleNotFoundError: No module named 'lancewal_flusher'"
    assert _reason(RuntimeError("Job 3 cancelled\nmore")) == "Job 3 cancelled"


COMMANDS = {
    "flusher": "from lancewal_flusher.commands.flusher import run; run(TableAsked(), runner=None)",
    "merge": "from lancewal_flusher.commands.merge import command; command(Asked(), runner=RunnerName.SPARK)",
    "compact": "from lancewal_flusher.commands.compact import command; command(Asked(), runner=RunnerName.SPARK)",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_driver_program_loads_lance_after_spark(command: str) -> None:
    """Classic PySpark starts Java by a fork."""
    program = f"""
import sys
from lancewal_flusher.tasks import spark_session

class Ended(BaseException):
    pass

def the_session():
    assert "lance" not in sys.modules and "pyarrow" not in sys.modules
    raise Ended

spark_session.the_session = the_session
from lancewal_core.cli.options import Asked, TableAsked
from lancewal_flusher.commands.runner_option import RunnerName
try:
    {COMMANDS[command]}
except Ended:
    print("before Lance")
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    if command == "flusher":
        environment["LANCEWAL_FLUSHER__RUNNER"] = "spark"
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.stdout.strip() == "before Lance", ended.stderr


@pytest.mark.parametrize("turn", [None, *SubmitTurn])
def test_the_scripts_for_spark_submit(turn: SubmitTurn | None, capsys: pytest.CaptureFixture[str]) -> None:
    """Each runs the command of its name, which exists."""
    spark_script(turn)
    script = capsys.readouterr().out.strip()
    help_ = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=False)
    assert help_.returncode == 0, help_.stderr
    assert f"lancewal {turn or 'flusher run'}" in help_.stdout
