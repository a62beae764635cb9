"""What is said where PySpark or Java is missing or too old: one line, with what is there and what is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lancewal.spark
from lancewal_reader.spark.installed import check_pyspark, missing_java


@pytest.mark.parametrize("name", lancewal.spark.__all__)
def test_a_pyspark_that_is_too_old_is_named_by_every_function(name: str, tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "version.py").write_text('__version__: str = "3.5.3"\n')
    path = os.pathsep.join([str(tmp_path), *sys.path])
    program = f"import lancewal.spark; lancewal.spark.{name}"
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    last = ended.stderr.splitlines()[-1]
    assert last.endswith("PySpark 3.5.3 is installed; lancewal needs PySpark 4.0 to 4.3: pip install 'lancewal[spark]'")


def test_the_pyspark_of_the_tests_will_do() -> None:
    check_pyspark()


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('openjdk version "17.0.9" 2023-10-17', None),
        ('openjdk version "21.0.8" 2025-07-15', None),
        ('openjdk version "11.0.21" 2023-10-17', "is Java 11; Spark needs Java 17 or 21"),
        ('java version "1.8.0_392"', "is Java 8; Spark needs Java 17 or 21"),
        (None, "Java was not found in JAVA_HOME="),
    ],
)
def test_java(said: str | None, found: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if said is not None:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        program.chmod(0o755)
    assert (found in missing_java()) if found else missing_java() == ""
    if said is None:
        monkeypatch.delenv("JAVA_HOME")
        monkeypatch.setenv("PATH", str(tmp_path))
        assert missing_java().startswith("Java was not found on the PATH; Spark needs Java 17 or 21")


def test_java_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr("lancewal_reader.spark.installed._VERSION_S", 0.2)
    assert missing_java().startswith(f"{program} did not tell its version within 0.2 s; Spark needs Java 17 or 21")
