"""The recipes of docs/how-to/keep-history.md for Spark, run as they stand on the page, against the produced records.

With Delta
 1. A table takes random records: inserts, updates, patches, deletes, re-inserts, several of a key between two batches.  Some
    are merged and some are not.
 2. A process runs all recipes to the end of what is there, and is started anew for each stage.
 3. One process is killed after each recipe has made its MERGE, before Spark commits the batches.  The next process gets these
    batches again, and their MERGE must change no row.
 4. In the last stage the table has a column more.
 5. After each stage each Delta table equals the rows or versions that the records alone give.

With AUTO CDC, no table format exists that takes it on that Spark.  ``spark-pipelines dry-run`` must accept the pipeline, and
``run`` must come as far as the target.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.peers.engines import ENGINES
from benchmarks.peers.fetch import checked_jars, jars_of
from lancewal_demo.stack.processes import Process, log_tail
from tests.spark_versions.environments import Environment
from tests.spark_versions.page import HISTORY, Run
from tests.spark_versions.sessions import session
from tests.support.pipeline import Key, Pipeline, Row
from tests.support.row_history import (
    ADDRESS,
    Histories,
    by_records,
    by_states,
    commit_time,
    differing,
    kept,
    section,
    unsteady_ms,
)

WITH_DELTA = "4.1"
"""The Spark that Delta's jars are for."""
_PACKAGE = ENGINES["delta"].package
_CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    # Java compiles quickly rather than well: each process is over before optimised code pays for its making.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "America/New_York",
    # The state of Delta's log in one part instead of 50: it has a few files.
    "spark.databricks.delta.snapshotPartitions": "1",
}
_RUN_S = 900.0
RECIPES = _NEWEST, _EVERY, _BY_NET = "SCD type 1, net", "SCD type 2, all", "SCD type 2, net"
_EVERY_TIME, _NET_TIME = 'F.coalesce("_record_time", "_commit_timestamp")', 'F.col("_commit_timestamp")'
_DRY, _TARGET = "AUTO CDC, dry run", "AUTO CDC, up to a target without MERGE"


def run_history(environment: Environment, folder: Path) -> Run | None:
    """Run the recipes that there are for this PySpark; None if there are none."""
    folder.mkdir()
    if environment.version.startswith(f"{WITH_DELTA}."):
        return Run(environment.version, HISTORY, _with_delta(environment, folder))
    if _has_auto_cdc(environment):
        return Run(environment.version, HISTORY, _with_auto_cdc(environment, folder))
    return None


# -- Delta -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Model:
    """What the Delta tables must have by now."""

    made: Pipeline
    since: list[int]
    """Records of each partition that came before the first snapshot."""
    states: list[tuple[datetime, dict[Key, Row]]] = field(default_factory=list)
    """After each stage."""

    def note(self) -> None:
        self.states.append((commit_time(self.made), {key: dict(row) for key, row in self.made.oracle.items()}))

    def histories(self) -> dict[str, Histories]:
        nulls = dict.fromkeys(self.made.columns.names)
        states = [(time, {key: {**nulls, **row} for key, row in rows.items()}) for time, rows in self.states]
        return {_EVERY: by_records(self.made, self.since, self.states[0][0]), _BY_NET: by_states(states)}


def _with_delta(environment: Environment, folder: Path) -> dict[str, str]:
    made = Pipeline(folder, partitions=2, seed=37, record_ms=unsteady_ms)
    try:
        return _stages(environment, folder, made)
    except _Failed as failed:
        return dict.fromkeys(RECIPES, str(failed))
    finally:
        made.close()


class _Failed(Exception):
    """A process did not end as it should."""


def _stages(environment: Environment, folder: Path, made: Pipeline) -> dict[str, str]:
    recipes = _Recipes(environment, folder, made.uri)
    made.produce(80, regions=3, ids=8)
    made.merge_all()
    made.produce(30, regions=3, ids=8)
    made.ingest()
    model = _Model(made, [len(made.messages(p)) for p in range(made.contract.partitions)])
    wrong: dict[str, str] = {}

    def compare(stage: str) -> None:
        model.note()
        for recipe, text in _compared(recipes, model).items():
            wrong.setdefault(recipe, f"{stage}: {text}")

    recipes.run()
    compare("the first snapshot")
    made.produce(90, regions=3, ids=8)
    made.merge_all()
    made.produce(40, regions=3, ids=8)
    made.ingest()
    recipes.run(killed=True)
    for recipe, changed in recipes.run().items():
        numbers = [number for of, number in recipes.batches() if of == recipe]
        if numbers[-1] != numbers[-2]:
            wrong.setdefault(recipe, f"no batch came again: {numbers}")
        if any(changed):
            wrong.setdefault(recipe, f"a batch that came again has inserted, updated, deleted {changed} rows")
    compare("a batch again")
    made.produce(50, regions=3, ids=8)
    made.merge_all()
    made.change_columns({}, {"note": "string"})
    made.produce(60, regions=3, ids=8)
    made.merge_all()
    made.produce(40, regions=3, ids=8)
    made.ingest()
    recipes.run(added=True)
    compare("a column more")
    return {recipe: wrong.get(recipe, "") for recipe in RECIPES}


class _Recipes:
    """The programs of the page, with the places of this run."""

    def __init__(self, environment: Environment, folder: Path, uri: str) -> None:
        self.tables = {recipe: str(folder / recipe.replace(", ", "-").replace(" ", "-")) for recipe in RECIPES}
        self._environment, self._folder = environment, folder
        self._runs = 0
        jars = ",".join(str(jar) for jar in sorted(checked_jars(jars_of(ENGINES["delta"])).glob("*.jar")))
        self._start, self._recipes, self._statements = programs(uri, jars, self.tables)

    def run(self, killed: bool = False, added: bool = False) -> dict[str, list[int]]:
        """Return how many rows the last MERGE of each recipe has inserted, updated and deleted."""
        self._runs += 1
        asked = {
            "start": self._start,
            "recipes": self._recipes,
            "statements": self._statements if added else [],
            "killed": killed,
            "tables": self.tables,
            "folder": str(self._folder),
        }
        log = self._folder / f"{self._runs}.log"
        (self._folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in _CONF.items()))
        variables = {**self._environment.variables(self._folder), "SPARK_CONF_DIR": str(self._folder)}
        command: list[str | Path] = [
            self._environment.python,
            "-m",
            "tests.spark_versions.history_child",
            json.dumps(asked),
        ]
        code = _ended(command, log, variables)
        if code != (-signal.SIGKILL if killed else 0):
            raise _Failed(f"exit code {code}: {' '.join(log_tail(log).split())[-300:]}")
        said = [json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"name"')]
        return {answer["name"]: answer["changed"] for answer in said}

    def batches(self) -> list[tuple[str, int]]:
        """Return the batches of all runs: recipe and number."""
        return [tuple(json.loads(line)) for line in (self._folder / "batches.jsonl").read_text().splitlines()]

    def rows(self, recipe: str) -> pa.Table:
        with pa.OSFile(str(self._folder / f"{recipe}.arrow")) as source:
            return pa.ipc.open_file(source).read_all()


def programs(uri: str, jars: str, tables: Mapping[str, str]) -> tuple[str, dict[str, str], list[str]]:
    """Return the program of the page that starts Spark, that of each recipe, and SQL for an added column: for these places.

    ``LookupError``: the page has no longer what is replaced."""
    start = _replaced(section("Spark and Delta"), {f'"spark.jars.packages", "{_PACKAGE}"': f'"spark.jars", "{jars}"'})
    every = section("Every version: SCD type 2")
    by_net = _replaced(every, {'changes="all"': 'changes="net"', _EVERY_TIME: _NET_TIME})
    newest = section("The newest rows: SCD type 1")
    recipes: dict[str, str] = {}
    for recipe, text, name in ((_NEWEST, newest, "current"), (_EVERY, every, "history"), (_BY_NET, by_net, "history")):
        texts = {
            ADDRESS: uri,
            f"/lake/orders_{name}": tables[recipe],
            f"/checkpoints/orders_{name}": f"{tables[recipe]}.checkpoint",
            f".foreachBatch(keep_{name})": f".foreachBatch(watched({recipe!r}, keep_{name}))",
        }
        recipes[recipe] = _replaced(text, texts)
    added = section("When columns are added", "sql").rstrip().rstrip(";")
    return start, recipes, [_replaced(added, {"/lake/orders_history": place}) for place in tables.values()]


def _compared(recipes: _Recipes, model: _Model) -> dict[str, str]:
    """Return the first difference of each recipe that has one."""
    newest = {(row["region"], row["id"]): row for row in recipes.rows(_NEWEST).drop("_sequence").to_pylist()}
    found: dict[str, tuple[Mapping[Key, Any], Mapping[Key, Any]]] = {_NEWEST: (newest, model.made.oracle)}
    for recipe, expected in model.histories().items():
        found[recipe] = kept(recipes.rows(recipe)), expected
    return {recipe: text for recipe, pair in found.items() if (text := next(differing(*pair), None)) is not None}


def _replaced(program: str, texts: Mapping[str, str]) -> str:
    for text, there in texts.items():
        if text not in program:
            raise LookupError(f"the page has no {text!r} any more")
        program = program.replace(text, there)
    return program


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


# -- AUTO CDC --------------------------------------------------------------------------------------------------------

_NO_MERGE = "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE"
_SPEC = """name: history
catalog: spark_catalog
database: default
storage: file://{folder}/storage
libraries:
  - glob:
      include: programs/**
"""


def _with_auto_cdc(environment: Environment, folder: Path) -> dict[str, str]:
    made = Pipeline(folder, partitions=2, seed=37)
    made.produce(60, regions=3, ids=8)
    made.merge_all()
    made.produce(20, regions=3, ids=8)
    made.ingest()
    made.close()
    (folder / "programs").mkdir()
    (folder / "programs" / "history.py").write_text(_replaced(section("AUTO CDC"), {ADDRESS: made.uri}))
    (folder / "spark-pipeline.yml").write_text(_SPEC.format(folder=folder))
    with session("connect", environment, folder / "server") as server:
        found: dict[str, str] = {}
        for act, name, wanted in (("dry-run", _DRY, "Run is COMPLETED"), ("run", _TARGET, _NO_MERGE)):
            log = folder / f"{act}.log"
            program = environment.spark_home / "bin" / "spark-pipelines"
            command: list[str | Path] = [
                program,
                act,
                "--remote",
                str(server.remote),
                "--spec",
                folder / "spark-pipeline.yml",
            ]
            _ended(command, log, environment.variables(folder))
            said = log.read_text()
            found[name] = "" if wanted in said else " ".join(log_tail(log).split())[-300:]
    return found


def _has_auto_cdc(environment: Environment) -> bool:
    api = environment.spark_home / "pipelines" / "api.py"
    return api.exists() and "def create_auto_cdc_flow" in api.read_text()
