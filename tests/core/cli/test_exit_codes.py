"""Every command ends with the exit code that the branch of its error says, by what is wrong before it begins its work."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.cli.program import run
from lancewal_core.errors import InvalidSettings, ObjectCorrupt, OwnershipLost, PlanStale, StartAgain, StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.settings import load
from lancewal_core.store.obstore import open_store
from tests.core.cli.test_groups import ALONE

BRANCHES: tuple[tuple[Exception, int], ...] = (
    (InvalidSettings("a person"), 2),
    (StoreUnavailable("later"), 3),
    (PlanStale("anew"), 3),
    (ObjectCorrupt("damaged"), 4),
    (OwnershipLost("another"), 3),
    (StartAgain("anew"), 3),
    (RuntimeError("a bug"), 5),
)
WITH_SETTINGS = [
    name for name, command in ALONE.items() if "--config" in {option for p in command.params for option in p.opts}
]
NEEDS_NO_TABLE = {
    "config check",
    "config init",
    "config show",
    "demo",
    "estimate",
    "flusher spark-script",
    "store check",
}
MAKES = {"table create", "table attach"}
"""What is wrong with a table that is there is not what stops them."""
OF_TABLES = [name for name in ALONE if name not in NEEDS_NO_TABLE and name.split()[0] not in ("catalog", "cut")]
SETTINGS = """
table: {topic: orders, columns: {id: int64}, primary_key: [id], region_key: [id]}
kafka: {bootstrap_servers: "nobody:1"}
http: {ingest_port: 0, flusher_port: 0}
"""


def example(name: str) -> list[str]:
    """The command with the arguments of its example, but for the table and the settings."""
    said = shlex.split((ALONE[name].epilog or "").removeprefix("Example: "))
    words: list[str] = []
    given = iter(said[1 + len(name.split()) :])
    for word in given:
        if word in ("-t", "-c"):
            next(given)
        elif word != "-o" or next(given):
            words.append(word)
    return [*name.split(), *(word for word in words if word not in ("json", "-o"))]


def ended(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run(arguments)
    return code, capsys.readouterr().err


@pytest.fixture
def settings(tmp_path: Path) -> str:
    file = tmp_path / "lancewal.yaml"
    file.write_text(SETTINGS)
    return str(file)


@pytest.mark.parametrize("name", ALONE)
def test_a_word_that_it_does_not_know(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ended([*name.split(), "--no-such-option"], capsys)
    assert (code, "--no-such-option" in said) == (2, True)


@pytest.mark.parametrize("name", WITH_SETTINGS)
def test_each_branch(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for error, expected in BRANCHES:

        def fails(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(load, "load_settings", fails)
        code, said = ended([*example(name), *YES.get(name, ())], capsys)
        assert (code, str(error) in said) == (expected, True), (name, error)


YES = {name: ("--yes",) for name, command in ALONE.items() if "--yes" in {o for p in command.params for o in p.opts}}
"""Or there is nobody to ask."""


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Lance table whose contract cannot be read."""
    place = str(tmp_path_factory.mktemp("tables") / "damaged")
    lance.write_dataset(pa.table({"id": [1]}), place)
    open_store(place).put_if_absent(paths.contract_version(1, None), b"{")
    return place


@pytest.mark.parametrize("name", [name for name in OF_TABLES if name not in MAKES])
def test_no_table_and_a_damaged_one(
    name: str, settings: str, damaged: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = tmp_path / "nothing"
    arguments = (*example(name), *YES.get(name, ()), "-c", settings)
    code, said = ended([*arguments, "-t", str(nothing)], capsys)
    assert (code, said.startswith("lancewal: ")) == (2, True), said
    assert not nothing.exists()
    code, said = ended([*arguments, "-t", damaged], capsys)
    assert (code, paths.contract_version(1, None) in said) == (4, True), said
