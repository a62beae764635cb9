"""No function takes more than six parameters: what belongs together is a value, and an open table is one.

A function of a merge or of upkeep that needs only a few members of the context takes these, so that its signature says what it
may touch.
"""

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
MEMBERS_MAX = 3
"""Members of the context that a function takes by themselves."""
WHOLE_CONTEXT = {
    # With its two members it would take seven parameters.
    "lancewal_flusher.merge.changes.run_tasks",
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


def with_few_members(source: str, module: str) -> Iterator[str]:
    """Yield functions that take the whole context, hand it to nobody, and use few of its members."""
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        if not any(one.arg == "context" for one in function.args.args):
            continue
        members = [
            node.attr
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "context"
        ]
        named = sum(isinstance(node, ast.Name) and node.id == "context" for node in ast.walk(function))
        if named == len(members) and len(set(members)) <= MEMBERS_MAX:
            yield f"{module}.{function.name}"


def test_functions_of_merges_and_upkeep_take_what_they_use() -> None:
    found = {
        name
        for module, file in modules("lancewal_flusher").items()
        if module.startswith(("lancewal_flusher.merge.", "lancewal_flusher.upkeep."))
        for name in with_few_members(file.read_text(encoding="utf-8"), module)
    }
    assert found - WHOLE_CONTEXT == set(), "take these members instead of the context"
    assert WHOLE_CONTEXT - found == set(), "no longer so: strike them out"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(context): return context.a, context.b, context.a, context.c", ["m.f"]),
        ("def f(context): return context.a, context.b, context.c, context.d", []),
        ("def f(context): return g(context, context.a)", []),
        ("def f(table): return table.a", []),
    ],
)
def test_which_functions_use_few_members(source: str, expected: list[str]) -> None:
    assert list(with_few_members(source, "m")) == expected


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
