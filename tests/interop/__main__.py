"""``python3 dev.py interop [VERSION ...]``: test which readers open a merged table and a named snapshot.

Readers are pylance in each of ``VERSIONS``, and the next pylance before its release if PyPI has one, each in its own
environment below ``INTEROP_CACHE`` (by default in the cache folder; a name that begins with LANCEWAL would be read as a
setting). Others are Lance's connector for Spark, as ``dev.py bench-peers`` fetches it, and DuckDB's extension for
Lance, if they are available.  The page ``docs/reference/which-readers-work.md`` has the results.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers.engines import ENGINES
from benchmarks.peers.fetch import checked_jars, jars_of, python_of
from lancewal_demo.stack.java import spark_java_home
from lancewal_demo.stack.processes import StackFailed
from tests.interop.made import Made, made_tables
from tests.interop.page import PAGE, page

VERSIONS = ("1.0.4", "2.0.1", "4.0.2", "6.1.0", "8.0.1", "10.0.0", "12.0.0", "14.0.2")
FOLDER = Path(os.environ.get("INTEROP_CACHE", Path.home() / ".cache" / "lancewal" / "interop"))
ASKED = ("count", "two columns", "all columns", "filter", "take", "aggregate by DuckDB")
ASKED_OF_SPARK = ("count", "two columns", "all columns", "filter")
ASKED_OF_DUCKDB = ("count", "two columns", "filter")
ANSWERS_S: float = 600
"""Longest time that a reader takes for all questions about a table, in seconds."""
_HERE = Path(__file__).parent

Found = dict[str, dict[str, dict[str, str]]]
"""Per reader and table what came of each question."""


def main(versions: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="lancewal-interop-") as place, ExitStack() as stack:
        tables = stack.enter_context(made_tables(Path(place)))
        pylance: Found = {}
        for version in versions or (*VERSIONS, *_before_release()):
            python = _environment(version)
            pylance[version] = {
                name: _asked([python, _HERE / "by_pylance.py"], made, ASKED) for name, made in tables.items()
            }
            print(version, json.dumps(pylance[version]), flush=True)
        others: Found = {"DuckDB's extension": _by_duckdb(tables), _SPARK.package: _by_lance_spark(tables)}
        print(json.dumps(others), flush=True)
        if not versions:
            PAGE.write_text(page(pylance, others, {name: made.about for name, made in tables.items()}))
    return 0


def _before_release() -> list[str]:
    """The newest that PyPI has of pylance without being a release; none where a release is newer."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", "pylance", "--pre"]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    newest = re.findall(r"Available versions: ([^,\s]*)", said)
    return [version for version in newest if re.search("[a-z]", version)]


def _environment(version: str) -> Path:
    folder = FOLDER / f"pylance-{version}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", f"pylance=={version}", "duckdb"], check=True)
        (folder / "ready").touch()
    return python


def _asked(
    command: list[str | Path], made: Made, questions: tuple[str, ...], environment: dict[str, str] | None = None
) -> dict[str, str]:
    """Return the reader's answers.  Of a table that is found by its name, the tables are listed first.

    One reader that hangs does not end the run: its answers until then count."""
    questions = ("list", *questions) if made.namespace else questions
    process = subprocess.Popen(
        [*map(str, command), json.dumps(made.asked(questions))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        out, _ = process.communicate(timeout=ANSWERS_S)
        otherwise = f"the process ended, {process.returncode}"
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        otherwise = f"no answer in {ANSWERS_S:g} s"
    said = dict(json.loads(line) for line in out.splitlines() if line.startswith("["))
    return {name: said.get(name, otherwise) for name in questions}


def _by_duckdb(tables: dict[str, Made]) -> dict[str, dict[str, str]]:
    program: list[str | Path] = [sys.executable, _HERE / "by_duckdb.py"]
    return {name: _asked(program, made, ASKED_OF_DUCKDB) for name, made in tables.items() if not made.namespace}


_SPARK = ENGINES["lance-spark"]


def _by_lance_spark(tables: dict[str, Made]) -> dict[str, dict[str, str]]:
    try:
        python, jars = python_of(_SPARK), checked_jars(jars_of(_SPARK))
    except StackFailed as error:
        why = f"not to be had: {str(error).splitlines()[0][:80]}"
        return {name: dict.fromkeys(("list", *ASKED_OF_SPARK), why) for name in tables}
    own = {
        "JAVA_HOME": str(spark_java_home()),
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": "",
        "BENCHMARK_PEERS_JARS": str(jars),
    }
    return {
        name: _asked([python, _HERE / "by_lance_spark.py"], made, ASKED_OF_SPARK, own) for name, made in tables.items()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
