"""Files, folders and modules that pages and docstrings name exist."""

from __future__ import annotations

import re

import pytest

from tests.layering.source import ROOT, RULES, modules
from tests.layering.test_layering import project_files

PAGES = {"ARCHITECTURE.md": 10, "docs/where-things-go.md": 40}
"""With how many places each names at least."""
PLACE = re.compile(r"`([\w.-]*/[\w./-]*|[\w-]+\.(?:py|md|toml|yaml|json))`")
MODULE = re.compile(rf"(?<![\w./-])((?:{'|'.join(RULES.keys() - {'lancewal'})})(?:\.\w+)+)")
KNOWN = {name: file for package in RULES for name, file in modules(package).items()}


@pytest.mark.parametrize("page", PAGES)
def test_every_place_that_the_page_names_exists(page: str) -> None:
    wrong, number, beside = [], 0, ""
    for place in PLACE.findall((ROOT / page).read_text()):
        number += 1
        # Part of a path lies beside the one that was named before, or in the core.
        if not any((ROOT / folder / place).exists() for folder in ("", beside, "core/lancewal_core")):
            wrong.append(place)
        if "/" in place:
            beside = place.rpartition("/")[0]
    assert wrong == []
    assert number >= PAGES[page]


def missing(name: str) -> bool:
    """No module, and no name in one."""
    module, rest = name, ""
    while module not in KNOWN:
        module, _, rest = module.rpartition(".")
    return bool(rest) and not re.search(rf"\b{rest}\b", KNOWN[module].read_text())


def test_every_module_that_a_file_names_exists() -> None:
    wrong = []
    for file in project_files():
        if file.suffix in (".py", ".md", ".yaml", ".toml"):
            for number, line in enumerate((ROOT / file).read_text().splitlines(), 1):
                wrong += [f"{file}:{number}: {name}" for name in MODULE.findall(line) if missing(name)]
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rows.fold", False),
        ("errors.Retry", False),
        ("rows.folds", True),
        ("errors.Gone", True),
    ],
)
def test_a_name_that_is_gone_is_seen(name: str, expected: bool) -> None:
    assert missing(f"lancewal_core.{name}") is expected
