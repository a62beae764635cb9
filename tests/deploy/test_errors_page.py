"""Every error has one branch, each branch its exit code, and docs/reference/errors.md lists them as they are declared.

``python -m tests.deploy.test_errors_page`` writes the page's tables.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core import errors
from lancewal_core.errors import (
    ActionNeeded,
    CatalogRefused,
    Corrupt,
    Fenced,
    InvalidInput,
    KafkaRefused,
    LancewalError,
    Refresh,
    RegistryRefused,
    Retry,
    StartAgain,
    StoreRefused,
)
from tests.layering.source import RULES, modules

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md"
HEADER = ["| error | kind | exit code | is |", "|---|---|---|---|"]
BRANCHES: dict[type[LancewalError], int] = {Retry: 3, Refresh: 3, Fenced: 3, StartAgain: 3, ActionNeeded: 2, Corrupt: 4}


def below(branch: type[LancewalError]) -> list[type[LancewalError]]:
    """Those of the tree, in the order in which they are declared."""
    found = [error for error in vars(errors).values() if inspect.isclass(error) and issubclass(error, branch)]
    return [error for error in found if error is not branch]


def everywhere(error: type[LancewalError] = LancewalError) -> Iterator[type[LancewalError]]:
    for child in error.__subclasses__():
        yield child
        yield from everywhere(child)


def line(error: type[LancewalError]) -> str:
    return f"| `{error.__name__}` | `{error.kind}` | {error.exit_code} | {' '.join((inspect.getdoc(error) or '').split())} |"


def made(page: str) -> str:
    """The page with a table for each branch, behind what else stands under its heading."""
    lines = page.splitlines()
    for branch in BRANCHES:
        begin = lines.index(f"## {branch.__name__}") + 1
        end = next((i for i in range(begin, len(lines)) if lines[i].startswith("## ")), len(lines))
        text = [said for said in lines[begin:end] if said and not said.startswith("|")]
        rows = [*HEADER, *map(line, below(branch))]
        lines[begin:end] = ["", *text, "", *rows, *([""] if end < len(lines) else [])]
    return "\n".join(lines) + "\n"


def test_the_page_has_every_error_as_it_is_declared() -> None:
    assert PAGE.read_text() == made(PAGE.read_text())


@pytest.mark.parametrize(("branch", "code"), BRANCHES.items())
def test_a_branch_has_its_exit_code(branch: type[LancewalError], code: int) -> None:
    others = {error: error.exit_code for error in (branch, *below(branch)) if error.exit_code != code}
    assert others == (
        {CatalogRefused: 2, StoreRefused: 2, KafkaRefused: 2, RegistryRefused: 2} if branch is Retry else {}
    )


def test_every_error_has_one_branch_and_a_kind_of_its_own() -> None:
    for name in (
        name for part in RULES for name, file in modules(part).items() if "(ActionNeeded)" in file.read_text()
    ):
        importlib.import_module(name)
    found = {error for error in everywhere() if error.__module__.startswith("lancewal")}
    wrong = [error for error in found if sum(issubclass(error, branch) for branch in BRANCHES) != 1]
    assert wrong == []
    kinds = [error.kind for error in found]
    assert sorted(kinds) == sorted(set(kinds))
    assert {"not_a_lancewal_table", "spark_stopped", "extra_missing"} <= set(kinds)
    assert [error for error in found if error.kind.replace("_", "") != error.__name__.lower()] == []


def test_an_input_that_is_wrong_is_a_value_error() -> None:
    assert issubclass(InvalidInput, ValueError)
    assert [error.__name__ for error in below(ActionNeeded) if issubclass(error, ValueError)] == ["InvalidInput"]


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
