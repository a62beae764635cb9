"""A peer in its own process, called from this process."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

from benchmarks.elapsed import Elapsed
from benchmarks.keyed_rows import Model, Sums
from benchmarks.peers.cpu_time import cpu_s
from benchmarks.peers.engines import Engine
from benchmarks.peers.fetch import JARS, checked_jars, jars_of, python_of
from lancewal_core.table.lance.row_files import CORES_RESERVED
from lancewal_demo.stack import StackFailed, spark_java_home
from lancewal_demo.stack.processes import log_tail

_ROOT = Path(__file__).parents[2]
_END_S = 60.0


class RemotePeer:
    """Use in ``with``.  Each call raises ``StackFailed`` with the log's end if the peer cannot do it."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        """``folder`` is made; the table and the log lie there.  The first start on a machine fetches the peer."""
        folder.mkdir(parents=True)
        self.name = engine.name
        self._log = folder / f"{engine.name}.log"
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        environment.pop(CORES_RESERVED, None)  # as Lance's own users have it
        python = str(python_of(engine))
        if engine.by_spark:
            spark = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
            jars = str(checked_jars(jars_of(engine)))
            environment |= spark | {"JAVA_HOME": str(spark_java_home()), JARS: jars}
            environment.pop("SPARK_HOME", None)
        with open(self._log, "ab") as log:
            self._child = subprocess.Popen(
                [python, "-m", "benchmarks.peers.child", engine.module, str(folder)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=folder,
            )  # fmt: skip
        try:
            started = self._answer()
        except StackFailed:
            self.__exit__()
            raise
        self.roots = [self._child.pid, *started["value"]]
        """Of its processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """The end of its stdin ends the child, also when this process is killed."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def create(self, rows: Path) -> Elapsed:
        return self._spent("create", rows)

    def upsert(self, rows: Path) -> Elapsed:
        """``rows`` is one Parquet file; reading it is not counted."""
        return self.read_and_upsert(rows)[1]

    def read_and_upsert(self, rows: Path) -> tuple[Elapsed, Elapsed]:
        """What reading the file took, and then the upsert."""
        return self._spent("give", rows), self._spent("upsert")

    def check(self, model: Model) -> None:
        """Compare what its reader sees with the model."""
        found, _ = self.aggregate()
        if found != model.sums:
            raise AssertionError(f"{self.name} holds {found}, the model {model.sums}")

    def aggregate(self, place: Path | None = None) -> tuple[Sums, Elapsed]:
        """Of its table; of the data set at ``place``, where it can read those of others."""
        cpu = cpu_s(self.roots)
        answer = self._ask("aggregate") if place is None else self._ask("aggregate_of", place)
        return Sums(*answer["value"]), Elapsed(answer["seconds"], cpu_s(self.roots) - cpu)

    def scan(self, place: Path | None = None) -> Elapsed:
        """As ``aggregate``."""
        return self._spent("scan") if place is None else self._spent("scan_of", place)

    def compact(self) -> Elapsed:
        return self._spent("compact")

    def _spent(self, act: str, rows: Path | None = None) -> Elapsed:
        cpu = cpu_s(self.roots)
        seconds = self._ask(act, rows)["seconds"]
        return Elapsed(seconds, cpu_s(self.roots) - cpu)

    def _ask(self, act: str, rows: Path | None = None) -> dict[str, Any]:
        assert self._child.stdin is not None
        request = {"act": act} if rows is None else {"act": act, "rows": str(rows)}
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise self._failed(f"{self.name} has ended") from error
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self._child.wait()
            raise self._failed(f"{self.name} ended with exit code {self._child.returncode}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._failed(f"{self.name}: {answer['error']}")
        return answer

    def _failed(self, what: str) -> StackFailed:
        return StackFailed(f"{what}.\n{log_tail(self._log)}")
