"""``python3 dev.py check-spark [VERSION ...]``: run the same reads on PySpark from PyPI, and compare with DuckDB.

Without a version, the oldest and the newest supported PySpark run; ``4.1`` means its newest release.  Each reads in
three ways: ``local``, on a standalone cluster of two workers, and through Spark Connect.  The way ``history`` runs the recipes
of ``docs/how-to/keep-history.md`` on each PySpark that has some.  ``--way``, which may be repeated, selects some of them.  A
complete run writes its results to ``docs/reference/which-sparks-work.md``. Exit code 0 only if everything passed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import lance
import pyarrow as pa

from lancewal import Token
from lancewal_demo.stack.processes import Process
from lancewal_reader.table import open_table, reads_of
from lancewal_tables.snapshots.make import make_snapshot
from tests.spark_versions import loaded
from tests.spark_versions.environments import NEWEST, OLDEST, Environment, environment_of
from tests.spark_versions.history import WITH_DELTA, run_history
from tests.spark_versions.page import HISTORY, PAGE, Run, page
from tests.spark_versions.reads import LOADED, READS, Read
from tests.spark_versions.sessions import WAYS, Session, session
from tests.support.flusher_tables import FlusherTable
from tests.support.pipeline import EVERY_TYPE, Pipeline

_RUN_S = 900.0
_COMPLETE = [(OLDEST, WAYS), (WITH_DELTA, (HISTORY,)), (NEWEST, (*WAYS, HISTORY))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="dev.py check-spark", description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=[])
    parser.add_argument("--way", action="append", choices=(*WAYS, HISTORY), default=[])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lancewal-spark-") as place:
        table = _table(Path(place))
        runs = []
        asked = [(version, (*WAYS, HISTORY)) for version in given.versions] or _COMPLETE
        for number, (version, ways) in enumerate(asked):
            environment = environment_of(version)
            for way in ways:
                folder = Path(place) / f"{number}-{way}"
                if given.way and way not in given.way:
                    continue
                run = run_history(environment, folder) if way == HISTORY else _run(way, environment, table, folder)
                if run is not None:
                    runs.append(run)
                    _say(run)
    if not given.versions and not given.way:
        PAGE.write_text(page(runs))
        print(f"written: {PAGE}")
    return 1 if any(run.wrong for run in runs) else 0


@dataclass(frozen=True, slots=True)
class _Table:
    """``rows``: what DuckDB has of it, by ``Read.of``."""

    uri: str
    points: dict[str, str]
    rows: dict[str, pa.Table]


def _table(folder: Path) -> _Table:
    """Merged and unmerged rows of every type, in several fragments; a state of before, kept as a snapshot."""
    made = Pipeline(folder, EVERY_TYPE, seed=20, seal_rows=10_000)
    for _ in range(4):
        made.produce(150)
        made.merge_all()
    made.produce(80)
    made.ingest()
    made.hand_over()
    earlier, receipt = list(made.oracle.values()), open_table(made.uri).receipt()
    context = made.flusher()
    make_snapshot(context, reads_of(context, made.uri), "kept")
    made.produce(80)
    made.ingest()
    made.close()
    merged = lance.dataset(made.uri)
    last = [(made.contract.topic, p, len(made.messages(p)) - 1) for p in range(made.contract.partitions)]
    points = {"receipt": str(receipt), "version": str(merged.version), "token": str(Token.of(*last))}
    rows = {
        "rows": pa.Table.from_pylist(list(made.oracle.values()), EVERY_TYPE),
        "earlier": pa.Table.from_pylist(earlier, EVERY_TYPE),
        "merged": merged.to_table(),
    }
    return _Table(made.uri, points, rows)


def _run(way: str, environment: Environment, table: _Table, folder: Path) -> Run:
    with session(way, environment, folder) as made:
        FlusherTable(folder / "empty", columns=loaded.COLUMNS).close()
        said = _read(environment, made, table, folder)
        idle = [path.name for path in made.event_logs if not path.exists()]
    first, *answers = said or [{"name": "session", "wrong": "the program said nothing"}]
    found: dict[str, str] = {}
    for answer in answers:
        found[answer["name"]] = answer["wrong"]
    for number, read in enumerate(READS):
        if found.setdefault(read.name, "the program ended before it") == "":
            found[read.name] = _compared(read, table, folder / f"{number}.arrow")
    if found.setdefault(LOADED, "the program ended before it") == "":
        rows = (
            lance.dataset(str(folder / "empty" / "table"))
            .to_table(columns=loaded.COLUMNS.names)
            .sort_by("id")
            .to_pylist()
        )
        found[LOADED] = "" if rows == loaded.ROWS else "other rows came in"
    found["executors that took part"] = f"nothing ran where {idle} would have it" if idle else ""
    if first.get("version") != environment.version:
        found["session"] = f"of PySpark {first.get('version')}: {first.get('wrong', '')}"
    return Run(environment.version, way, found)


def _read(environment: Environment, made: Session, table: _Table, folder: Path) -> list[dict[str, Any]]:
    asked = {
        "table": table.uri,
        "empty": str(folder / "empty" / "table"),
        "points": table.points,
        "conf": made.conf,
        "remote": made.remote,
        "folder": str(folder),
    }
    variables = environment.variables(folder)
    if made.remote is None and len(made.event_logs) == 1:
        variables["LANCEWAL_EVENT_LOG"] = str(made.event_logs[0])
    log = folder / "child.log"
    command: list[str | Path] = [environment.python, "-m", "tests.spark_versions.child", json.dumps(asked)]
    child = Process(command, log, environment=variables)
    end = time.monotonic() + _RUN_S
    try:
        while child.exit_code is None and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        child.kill()
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"name"')]


def by_duckdb(read: Read, rows: pa.Table) -> list[dict[str, Any]]:
    """What DuckDB says of a read of ``rows``."""
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'America/New_York'")
        engine.register("given", rows)
        engine.execute(f"CREATE VIEW t AS SELECT * FROM given WHERE {read.condition}")
        answer: pa.Table = engine.sql(read.sql).to_arrow_table()
        return answer.to_pylist()  # type: ignore[no-any-return]


def _compared(read: Read, table: _Table, file: Path) -> str:
    expected = by_duckdb(read, table.rows[read.of])
    with pa.OSFile(str(file)) as source:
        found: list[dict[str, Any]] = pa.ipc.open_file(source).read_all().to_pylist()
    if found == expected:
        return ""
    differing = next((pair for pair in zip(found, expected, strict=False) if pair[0] != pair[1]), None)
    return f"{len(found)} rows, DuckDB has {len(expected)}; the first that differs: {differing}"


def _say(run: Run) -> None:
    passed = sum(not wrong for wrong in run.found.values())
    print(f"-- PySpark {run.version}, {run.way}: {passed} of {len(run.found)} passed", flush=True)
    for name, wrong in run.wrong.items():
        print(f"   {name}: {wrong}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
