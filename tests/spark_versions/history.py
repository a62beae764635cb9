"""The pipeline of docs/how-to/keep-history.md for AUTO CDC, run as it stands on the page.

No table format with MERGE exists for that Spark.  So ``spark-pipelines dry-run`` must accept the pipeline, and ``run`` must
come as far as the target.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lancewal_demo.stack.processes import Process, log_tail
from tests.spark_versions.environments import Environment
from tests.spark_versions.page import HISTORY, Run
from tests.spark_versions.sessions import session
from tests.support.pipeline import Pipeline
from tests.support.row_history import ADDRESS, section

_RUN_S = 900.0
_DRY, _TARGET = "AUTO CDC, dry run", "AUTO CDC, up to a target without MERGE"
_NO_MERGE = "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE"
_SPEC = """name: history
catalog: spark_catalog
database: default
storage: file://{folder}/storage
libraries:
  - glob:
      include: programs/**
"""


def run_history(environment: Environment, folder: Path) -> Run | None:
    """Run the pipeline; None if this PySpark has no AUTO CDC."""
    folder.mkdir()
    if not _has_auto_cdc(environment):
        return None
    return Run(environment.version, HISTORY, _with_auto_cdc(environment, folder))


def _with_auto_cdc(environment: Environment, folder: Path) -> dict[str, str]:
    made = Pipeline(folder, partitions=2, seed=37)
    made.produce(60, regions=3, ids=8)
    made.merge_all()
    made.produce(20, regions=3, ids=8)
    made.ingest()
    made.close()
    (folder / "programs").mkdir()
    (folder / "programs" / "history.py").write_text(section("AUTO CDC").replace(ADDRESS, made.uri))
    (folder / "spark-pipeline.yml").write_text(_SPEC.format(folder=folder))
    with session("connect", environment, folder / "server") as server:
        found: dict[str, str] = {}
        for act, name, wanted in (("dry-run", _DRY, "Run is COMPLETED"), ("run", _TARGET, _NO_MERGE)):
            log = folder / f"{act}.log"
            program, spec = environment.spark_home / "bin" / "spark-pipelines", folder / "spark-pipeline.yml"
            command: list[str | Path] = [program, act, "--remote", str(server.remote), "--spec", spec]
            _ended(command, log, environment.variables(folder))
            said = log.read_text()
            found[name] = "" if wanted in said else " ".join(log_tail(log).split())[-300:]
    return found


def _has_auto_cdc(environment: Environment) -> bool:
    api = environment.spark_home / "pipelines" / "api.py"
    return api.exists() and "def create_auto_cdc_flow" in api.read_text()


def _ended(command: Sequence[str | Path], log: Path, variables: Mapping[str, str]) -> int | None:
    """Return the exit code of a program; None if it runs for too long."""
    child = Process(command, log, environment=variables)
    end = time.monotonic() + _RUN_S
    try:
        while child.exit_code is None and time.monotonic() < end:
            time.sleep(0.1)
        return child.exit_code
    finally:
        child.kill()
