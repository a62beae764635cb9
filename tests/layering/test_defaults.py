"""A limit that is a setting has its default in the settings' section and nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.settings.sections import FlusherSettings, IngestSettings, Section
from tests.layering.source import ROOT

SECTIONS: dict[str, Section] = {"ingest": IngestSettings(), "flusher": FlusherSettings()}
UNITS = frozenset({"s", "ms", "max", "interval"})


def defaults(tree: ast.Module) -> Iterator[tuple[str, object]]:
    """Each field and parameter of a module with a number as its default, written there."""
    for node in ast.walk(tree):
        named: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.ClassDef):
            named = [
                (s.target.id, s.value)
                for s in node.body
                if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
            ]
        elif isinstance(node, ast.FunctionDef):
            given = node.args
            behind = [*given.posonlyargs, *given.args][::-1]
            named = [(a.arg, value) for a, value in zip(behind, given.defaults[::-1], strict=False)]
            named += [(a.arg, value) for a, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
        for name, value in named:
            number = None if value is None else _number(value)
            if number is not None:
                yield name, number


def _number(value: ast.expr) -> object:
    """The number that an expression of literals stands for."""
    allowed = (ast.Constant, ast.BinOp, ast.operator)
    if not all(isinstance(node, allowed) for node in ast.walk(value)):
        return None
    number: object = eval(ast.unparse(value))  # literals and operators only
    return number if isinstance(number, int | float) and not isinstance(number, bool) else None


def _words(name: str) -> frozenset[str]:
    return frozenset(name.replace("nbytes", "bytes").replace("share", "ratio").split("_")) - UNITS


def second_defaults(part: str, text: str) -> list[str]:
    """Fields and parameters that have a setting's name; or its number, and no word that its name has not."""
    settings = SECTIONS[part].model_dump()
    return [
        f"{name} = {number}: {setting}"
        for name, number in defaults(ast.parse(text))
        for setting, value in settings.items()
        if name == setting or (number == value and frozenset() != _words(name) <= _words(setting))
    ]


@pytest.mark.parametrize("part", SECTIONS)
def test_a_limit_has_one_default(part: str) -> None:
    modules = sorted(Path(ROOT, part).rglob("*.py"))
    assert len(modules) > 50
    found = {str(m.relative_to(ROOT)): second_defaults(part, m.read_text("utf-8")) for m in modules}
    assert {module: second for module, second in found.items() if second} == {}


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("class A:\n    nbytes: int = 64 << 20", "seal_bytes"),
        ("class A:\n    rows: int = 1_000_000", "seal_rows"),
        ("def f(*, linger_ms: int = 7): ...", "linger_ms"),
        ("def f(a, seal_age_s: float = 1.5): ...", "seal_age_s"),
    ],
)
def test_a_second_default_is_seen(text: str, second: str) -> None:
    assert [line.split(": ")[1] for line in second_defaults("ingest", text)] == [second]


@pytest.mark.parametrize(
    "text", ["class A:\n    nbytes: int = _DEFAULTS.seal_bytes", "def f(rows: int = 5): ...", "def f(rows: int): ..."]
)
def test_another_default_passes(text: str) -> None:
    assert second_defaults("ingest", text) == []
