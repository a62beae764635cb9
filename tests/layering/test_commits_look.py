"""Each function that commits to a table looks right before whether the table is still at its place.

Lance numbers versions alike in each table.  A commit would land in another table that was made there meanwhile, and a clean-up
would take its versions.  Branches are dropped by their notes, which another table's branches do not have.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.layering.source import RULES, modules

LOOK = "check_present"
COMMITS = {
    "change_columns", "extend_index", "rebuild_index", "build_index_again", "create_branch", "remove_versions",
    "alter_columns", "add_columns", "update_config", "create_index", "create_scalar_index", "optimize_indices",
    "merge_insert", "restore",
}  # fmt: skip
"""Methods of the door to tables, and of Lance's data sets, that make a version or take some."""
COMMIT_OF = re.compile(r"(.*\.)?_?(table|branch|dataset|LanceDataset)(\(.*\))?")
"""Receivers of ``commit`` that are tables.  Others are consumers of Kafka, and subscriptions."""
DOOR = ("lancewal_core.table.lance.", "lancewal_core.table.protocol")
WITHOUT = {
    "lancewal_tables.define.attach: ",  # there is no contract yet
    "lancewal_tables.define.create: ",
    "lancewal_tables.define.register: ",  # the contract was put a moment ago, and only uuids follow
}
"""Modules whose commits need no look, each with the reason."""


def commits(function: ast.AST) -> bool:
    """Whether the function calls, or hands over, something that commits."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Attribute):
            continue
        if node.attr in COMMITS or (node.attr == "commit" and COMMIT_OF.fullmatch(ast.unparse(node.value))):
            return True
    return False


def called(function: ast.AST) -> set[str]:
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {func.id for func in calls if isinstance(func, ast.Name)}


def without_look(source: str) -> Iterator[str]:
    """Name the functions that commit, though neither they nor a function of the module that they call looks."""
    tree = ast.parse(source)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    looking = {name for name, node in functions.items() if LOOK in called(node)}
    for name, node in functions.items():
        if commits(node) and not (called(node) & (looking | {LOOK})):
            yield name


def test_each_commit_looks_for_its_table() -> None:
    found = {
        f"{module}: {name}"
        for package in RULES
        for module, file in modules(package).items()
        if not module.startswith(DOOR)
        for name in without_look(file.read_text(encoding="utf-8"))
    }
    assert sorted(one for one in found if not one.startswith(tuple(WITHOUT))) == []
    assert {one.partition(": ")[0] + ": " for one in found} == WITHOUT, "modules that need no exception"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(): context.table.commit(a)", True),
        ("def f(): lance.LanceDataset.commit(uri, a)", True),
        ("def f(): context.table.branch(name).commit(a)", True),
        ("def f(): pinned.dataset.alter_columns(a)", True),
        ("def f(): act(partial(context.table.rebuild_index, name))", True),
        ("def f(): self._consumer.commit(a)", False),
        ("def f(): check_present(store, contract); context.table.commit(a)", False),
        ("def act(of): check_present(a, b); of()\ndef f(): act(partial(context.table.rebuild_index, name))", False),
        ("def act(of): of()\ndef f(): act(partial(context.table.rebuild_index, name))", True),
    ],
)
def test_what_is_found(source: str, found: bool) -> None:
    assert bool(list(without_look(source))) == found
