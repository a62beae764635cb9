"""Nothing has a default making: without one, a key is that of an object of a former table at the same place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.layering.source import RULES, modules


def with_default(source: str) -> Iterator[str]:
    """Name the functions and classes whose ``making`` may be left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            named = node.args.posonlyargs + node.args.args
            pairs = list(zip(reversed(named), reversed(node.args.defaults), strict=False))
            pairs += [
                (name, value) for name, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value
            ]
            if any(name.arg == "making" for name, _ in pairs):
                yield node.name
        elif isinstance(node, ast.ClassDef):
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and one.value is not None]
            if any(isinstance(one.target, ast.Name) and one.target.id == "making" for one in fields):
                yield node.name


def test_no_making_has_a_default() -> None:
    found = {
        f"{module}: {name}"
        for package in RULES
        for module, file in modules(package).items()
        for name in with_default(file.read_text(encoding="utf-8"))
    }
    # The stored contract of a table that was made before tables had makings has no such field.
    assert found == {"lancewal_core.table.contract: Contract"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(a, making): ...", False),
        ("def f(making, a=1): ...", False),
        ("def f(a, making=None): ...", True),
        ("def f(*, making=None): ...", True),
        ("def f(*, making, a=1): ...", False),
        ("class C:\n    making: str | None", False),
        ("class C:\n    making: str | None = None", True),
        ("class C:\n    def f(self, making=None): ...", True),
    ],
)
def test_what_is_found(source: str, found: bool) -> None:
    assert bool(list(with_default(source))) == found
