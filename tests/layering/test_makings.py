"""Whoever names an object that lies in a table's making says which: a key without it is that of a former table's object."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest

from tests.layering.source import RULES, modules

PARAMETER = "making"
HOLDERS = ("paths", "Page")
"""What such functions are attributes of."""
LEFT = {
    # Version 1 of the contract is looked for to learn the making.
    "lancewal_core.table.contract: paths.contract_version(FIRST_VERSION)",
    "lancewal_flusher.context: paths.contract_version(FIRST_VERSION)",
    # Looks only whether the region's parts can stand in a key.
    "lancewal_core.table.contract: paths.region_prefix(contract.regions[0])",
    "lancewal_core.region.state: paths.region_prefix(region)",
    # Another function of this name.
    "lancewal_core.cli.estimate.expected: pages_of(wished.partitions)",
    "lancewal_core.cli.estimate.pace: pages_of(wished.partitions)",
}


def takers(source: str) -> Iterator[tuple[str, int]]:
    """Functions and classes that take a making, and the place of it among what they are given."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and inner.name in ("__init__", "of"):
                    names = [one.arg for one in inner.args.args if one.arg not in ("self", "cls")]
                    if PARAMETER in names:
                        yield (node.name if inner.name == "__init__" else f"{node.name}.of"), names.index(PARAMETER)
        elif isinstance(node, ast.FunctionDef) and node.name not in ("__init__", "of"):
            names = [one.arg for one in node.args.args if one.arg not in ("self", "cls")]
            if PARAMETER in names:
                yield node.name, names.index(PARAMETER)


def without_making(source: str, module: str, known: Mapping[str, int]) -> Iterator[str]:
    tree = ast.parse(source)
    aliases = {
        alias.asname: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in HOLDERS:
            name = called.attr if called.value.id == "paths" else f"{called.value.id}.{called.attr}"
        elif isinstance(called, ast.Name):
            name = aliases.get(called.id, called.id)
        else:
            continue
        given = len(node.args) > known.get(name, -1) or any(word.arg == PARAMETER for word in node.keywords)
        if name in known and not given:
            yield f"{module}: {ast.unparse(node)}"


def test_everybody_says_which_making() -> None:
    files = {
        module: file.read_text(encoding="utf-8")
        for package in RULES
        for module, file in modules(package).items()
        if module != "lancewal_core.names.paths"
    }
    known = dict(takers((modules("lancewal_core")["lancewal_core.names.paths"]).read_text(encoding="utf-8")))
    for source in files.values():
        known |= dict(takers(source))
    assert {"contract_version", "merge_record", "Watermarks", "RegionIndexes", "Page.of"} <= known.keys()
    found = {call for module, source in files.items() for call in without_making(source, module, known)}
    assert found - LEFT == set()
    assert LEFT - found == set(), "no longer there: strike them out"


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("paths.f(1)", True),
        ("paths.f(1, m)", False),
        ("paths.f(1, making=m)", False),
        ("C(1)", True),
        ("D(1)", True),
        ("source.f(1)", False),
    ],
)
def test_what_is_found(call: str, found: bool) -> None:
    source = f"from x import C as D\n{call}"
    assert list(without_making(source, "m", {"f": 1, "C": 1})) == ([f"m: {call}"] if found else [])
