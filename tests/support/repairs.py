"""What the tests of repairs share: their context over a ``Pipeline``, the command line, damage, and a folder's content."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from typer.testing import CliRunner

from lancewal_audit.commands.repair import app
from lancewal_audit.repair.context import RepairContext
from lancewal_audit.repair.told import Told
from lancewal_core.cli.options import NOTHING_CHANGED
from lancewal_core.errors import LancewalError
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.region.opened_table import OpenedTable
from lancewal_core.store.object_store import ObjectStore, PutOutcome
from lancewal_reader.table import open_table
from tests.support.pipeline import Pipeline, by_key


@contextmanager
def repairing(pipeline: Pipeline, store: ObjectStore | None = None) -> Iterator[RepairContext]:
    """A repair command that has just started."""
    tasks = ThreadTasks(workers=1)
    found = store or pipeline.store
    try:
        opened = OpenedTable.over(found, pipeline.table, pipeline.contract, tasks, pipeline.clock)
        yield RepairContext(*opened.parts, lambda: uuid.uuid4().hex)
    finally:
        tasks.close()


def command(pipeline: Pipeline, *arguments: object) -> str:
    """``lancewal repair ARGUMENTS``; its output.  Raises what it raises."""
    asks = {"restored", "merged-position"}
    if arguments[0] in asks and "--dry-run" not in arguments:
        arguments = (*arguments, "--yes")
    config = Path(pipeline.uri).parent / "lancewal.yaml"
    config.write_text(yaml.safe_dump({"table": {"uri": pipeline.uri}}))
    done = CliRunner().invoke(app, [*map(str, arguments), "--config", str(config)])
    if isinstance(done.exception, LancewalError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def dry(pipeline: Pipeline, *arguments: object) -> str:
    """The same with ``--dry-run``, which changes nothing, and as JSON tells the same."""
    before = content(pipeline.uri)
    said = command(pipeline, *arguments, "--dry-run")
    report = json.loads(command(pipeline, *arguments, "--dry-run", "-o", "json"))
    assert content(pipeline.uri) == before
    assert [one["message"] for one in report["found"]] == said.splitlines()[:-1]
    assert said.splitlines()[-1] == NOTHING_CHANGED
    assert (report["done"], report["dry_run"]) == ([], True)
    return said


def messages(told: Iterable[Told]) -> list[str]:
    """The sentences of a report."""
    return [one.message for one in told]


def content(folder: str | Path) -> dict[str, bytes]:
    """Every file below ``folder``."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def flip(path: Path) -> None:
    """Change bytes in the middle."""
    data = bytearray(path.read_bytes())
    for at in range(len(data) // 2, min(len(data), len(data) // 2 + 8)):
        data[at] ^= 0xFF
    path.write_bytes(data)


def check_strong(pipeline: Pipeline) -> None:
    """A strong read is the fold of everything produced (and made durable)."""
    assert by_key(open_table(pipeline.uri).to_arrow()) == pipeline.oracle


def check_merged(pipeline: Pipeline) -> None:
    """So is the table alone."""
    assert by_key(open_table(pipeline.uri).to_arrow(consistency="eventual")) == pipeline.oracle


class Crash(Exception):
    """The process dies here."""


class CrashingStore:
    """A store whose process dies at the n-th object that it puts: before the put, or right after it."""

    def __init__(self, store: ObjectStore, at: int, *, after: bool = False) -> None:
        self._store = store
        self._left = at
        self._after = after
        self.get = store.get
        self.get_range = store.get_range
        self.list = store.list
        self.delete = store.delete

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Crash
        outcome = self._store.put_if_absent(key, data)
        if self._left == 0:
            raise Crash
        return outcome


class HookedStore:
    """A store that something happens to right before each put."""

    def __init__(self, store: ObjectStore, before_put: Callable[[str], None]) -> None:
        self._store = store
        self._before_put = before_put
        self.get = store.get
        self.get_range = store.get_range
        self.list = store.list
        self.delete = store.delete

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        self._before_put(key)
        return self._store.put_if_absent(key, data)
