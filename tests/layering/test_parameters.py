"""No function takes more than six parameters: what belongs together is a value, and an open table is one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.layering.source import RULES, modules

PARAMETERS_MAX = 6
LEFT = {
    # What users call, by keyword: a promise.
    "lancewal_tables.load.whole.load_files",
    "lancewal_tables.load.dataframe.load_dataframe",
    # One field of what is stored each, all of them of single callers.
    "lancewal_core.region.transitions.seal",
    # Logs lie below the open table.
    "lancewal_core.wal.log_end.end_log",
}
COMMANDS = ("typer.Option", "typer.Argument", "ConfigOption", "OutputOption")


def with_many(source: str, module: str) -> Iterator[str]:
    """Functions with too many parameters; constructors and commands may have them."""
    pending: list[tuple[ast.AST, str]] = [(ast.parse(source), module)]
    while pending:
        node, inside = pending.pop()
        name = inside
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{inside}.{node.name}"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            several = [one for one in (node.args.vararg, node.args.kwarg) if one is not None]
            named = [one for one in taken if one.arg not in ("self", "cls")]
            many = len(named) + len(several) > PARAMETERS_MAX and node.name != "__init__"
            if many and not is_command(named):
                yield name
        pending += [(child, name) for child in ast.iter_child_nodes(node)]


def is_command(parameters: list[ast.arg]) -> bool:
    written = [ast.unparse(one.annotation) for one in parameters if one.annotation is not None]
    return any(text in annotation for annotation in written for text in COMMANDS)


def test_no_function_has_more_than_six() -> None:
    found = {
        name
        for package in RULES
        if package != "lancewal_demo"
        for module, file in modules(package).items()
        if not file.stem.endswith("_pb2")
        for name in with_many(file.read_text(encoding="utf-8"), module)
    }
    assert found - LEFT == set(), "bundle what belongs together"
    assert LEFT - found == set(), "no longer so many: strike them out"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a, b, c, d, e, f): ...", []),
        ("def f(a, b, c, d, e, f, g): ...", ["m.f"]),
        ("def f(a, b, c, d, e, /, f, *, g): ...", ["m.f"]),
        ("def f(a, b, c, d, e, f, *g): ...", ["m.f"]),
        ("class A:\n    def f(self, a, b, c, d, e, f): ...\n    def g(self, a, b, c, d, e, f, h): ...", ["m.A.g"]),
        ("class A:\n    def __init__(self, a, b, c, d, e, f, g): ...", []),
        ("def f():\n    async def g(a, b, c, d, e, f, g): ...", ["m.f.g"]),
        ("def f(a, b, c, d, e, f, config: ConfigOption = None): ...", []),
    ],
)
def test_what_is_found(source: str, expected: list[str]) -> None:
    assert list(with_many(source, "m")) == expected
