"""Whoever folds or composes rows takes them from the gate (``lancewal_core.rows.projection.rows_as``).

``PLACES`` has every function outside of ``lancewal_core.rows`` that folds, and a test that fails where the gate refuses
the rows of that function alone.  A new place gets its rows from the gate, and a line here.

Within a place, whatever is folded comes from the gate too: followed through the names of the function and of those around it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

import pytest

from tests.layering.source import ROOT, RULES, modules

FOLDS = frozenset({"fold", "fold_onto", "compose"})
PLACES = {
    "lancewal_audit.repair.flush_state:_expected": (
        "tests/audit/repair/test_generation.py::test_a_flush_is_made_anew_from_its_log[lost-manifest]"
    ),
    "lancewal_audit.repair.segment:_content": "tests/audit/repair/test_segment.py::test_of_open_generations[lost-True]",
    "lancewal_core.keys.conflicts:folded": "tests/fuzz/test_conflicts.py::test_what_was_written_is_read",
    "lancewal_core.keys.conflicts:with_waiting": "tests/flusher/merge/test_set_aside.py::test_any_history[0-False]",
    "lancewal_core.region.flush:folded_content": (
        "tests/core/region/test_flush.py::test_the_flush_is_the_fold_from_memory_as_from_the_log[0]"
    ),
    "lancewal_flusher.merge.finish:_rebuild": (
        "tests/flusher/merge/test_finish.py::test_adopted_files_lost_between_check_and_commit_are_rebuilt"
    ),
    "lancewal_flusher.merge.finish:_taken_keys": (
        "tests/flusher/merge/test_finish.py::test_a_flusher_that_finishes_what_is_finished_and_trimmed[False]"
    ),
    "lancewal_flusher.merge.region_input:_input": (
        "tests/flusher/merge/test_merge.py::test_several_small_generations_become_one_fragment"
    ),
    "lancewal_reader.unmerged.flushed:_from_log": (
        "tests/reader/test_damage.py::test_a_lost_flush_is_read_from_the_log[manifest]"
    ),
    "lancewal_reader.unmerged.load:_folds_at_once": (
        "tests/reader/reading/test_lookup.py::test_each_key_has_its_row_in_the_order_asked[0]"
    ),
    "lancewal_tables.load.deletes:_gone": (
        "tests/tables/load/test_part.py::test_deletes_whose_flush_is_lost_are_read_from_the_log"
    ),
}
"""``module:function`` -> the test."""


def folding(source: str) -> Iterator[str]:
    """The outermost functions of a module that call one of ``FOLDS``, by their names; of a class, its methods."""
    for node in ast.parse(source).body:
        for function in node.body if isinstance(node, ast.ClassDef) else [node]:
            called = (call.func for call in ast.walk(function) if isinstance(call, ast.Call))
            if any(isinstance(name, ast.Name) and name.id in FOLDS for name in called):
                yield function.name if isinstance(function, ast.FunctionDef) else "?"


GATES = frozenset({"rows_as", "rows_as_wanted", "rows_of_flush", "_gated"})
ENTRY_GATE = "rows_of"
"""A method of ``OpenedTable``; ``repair`` has a function of this name, which is none."""
GATED = {
    "read_flushed": "lancewal_reader.unmerged.flushed:_of_flush",
    "remembered": "lancewal_reader.unmerged.entries:_entries",
    "reduced": "lancewal_reader.unmerged.entries:_entries",
}
"""Functions that give rows from the gate, and which one asks it."""
GIVEN = frozenset({("with_waiting", "more")})
"""Parameters whose rows a caller has from the gate: those that a merge has read of a region."""


def asks_the_gate(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in GATES | GATED.keys()
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in GATES or name == ENTRY_GATE
    return False


def bound(functions: Sequence[ast.FunctionDef], wanted: str) -> Iterator[ast.expr]:
    """What the functions bind a name to."""
    for node in (node for function in functions for node in ast.walk(function)):
        match node:
            case ast.Assign(targets=targets, value=value):
                names = targets
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                names = [target]
            case _:
                continue
        if any(isinstance(name, ast.Name) and name.id == wanted for target in names for name in ast.walk(target)):
            yield value


def is_gated(value: ast.expr, around: Sequence[ast.FunctionDef], seen: frozenset[str] = frozenset()) -> bool:
    """Whether the value is made of rows from the gate; of a list, each item."""
    if isinstance(value, ast.List):
        return all(is_gated(item, around, seen) for item in value.elts)
    if isinstance(value, ast.Name) and any((function.name, value.id) in GIVEN for function in around):
        return True
    if any(map(asks_the_gate, ast.walk(value))):
        return True
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} - seen
    return any(is_gated(made, around, seen | names) for name in sorted(names) for made in bound(around, name))


def bypasses(source: str) -> list[str]:
    """Folds of rows that do not come from the gate."""
    found = []

    def look(node: ast.AST, around: tuple[ast.FunctionDef, ...]) -> None:
        around = (*around, node) if isinstance(node, ast.FunctionDef) else around
        match node:
            case ast.Call(func=ast.Name(id=name), args=[*folded, _]) if name in FOLDS:
                if not all(is_gated(rows, around) for rows in folded):
                    found.append(f"line {node.lineno}: {ast.unparse(node)}")
        for child in ast.iter_child_nodes(node):
            look(child, around)

    look(ast.parse(source), ())
    return found


@pytest.mark.parametrize("module", sorted({place.partition(":")[0] for place in PLACES}))
def test_no_fold_bypasses_the_gate(module: str) -> None:
    assert bypasses(modules(module.partition(".")[0])[module].read_text()) == []


@pytest.mark.parametrize("asking", sorted({*GATED.values()}))
def test_what_gives_gated_rows_asks_the_gate(asking: str) -> None:
    module, _, name = asking.partition(":")
    tree = ast.parse(modules(module.partition(".")[0])[module].read_text())
    (function,) = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name == name]
    assert any(map(asks_the_gate, ast.walk(function)))


@pytest.mark.parametrize(
    "body",
    [
        "return fold([e.rows for e in entries], rows)",
        "made = [e.rows for e in entries]; return fold(made, rows)",
        "return compose([o.rows_of_flush(a, b), entries], rows)",
        "return fold_onto([], entries, rows)",
        "return fold_onto(entries, o.rows_as(a, b), rows)",
        "o.rows_of(a); return fold(entries, rows)",
        "return fold([rows_of(e) for e in entries], rows)",
    ],
)
def test_a_bypass_is_seen(body: str) -> None:
    assert bypasses(f"def f(o, entries, rows, a, b):\n    {body}")


@pytest.mark.parametrize(
    "body",
    [
        "return fold([o.rows_of(e) for e in entries], rows)",
        "made = [o.rows_of(e) for e in entries]; return fold([m for m in made], rows)",
        "return compose([o.rows_of_flush(a, b), o.rows_as(a, b)], rows)",
        "return fold_onto([], rows_as(entries, a, b), rows)",
    ],
)
def test_what_comes_from_the_gate_passes(body: str) -> None:
    assert bypasses(f"def f(o, entries, rows, a, b):\n    {body}") == []


def places_of(package: str) -> set[str]:
    return {
        f"{module}:{name}"
        for module, file in modules(package).items()
        if not module.startswith("lancewal_core.rows.")
        for name in folding(file.read_text())
    }


def test_every_place_that_folds_is_known() -> None:
    assert set().union(*map(places_of, RULES)) == PLACES.keys()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f():\n    return fold([], rows)", ["f"]),
        ("class A:\n    def g(self):\n        def h():\n            compose(x, y)\n        h()", ["g"]),
        ("x = fold_onto([], y, z)", ["?"]),
        ("def f():\n    self.fold(x)", []),
    ],
)
def test_what_is_found(source: str, expected: list[str]) -> None:
    assert list(folding(source)) == expected


def test_a_test_fails_for_each_place_whose_rows_the_gate_refuses(tmp_path: object) -> None:
    report = f"{tmp_path}/report.xml"
    plugin = ("-p", "no:cacheprovider", "-p", "tests.layering.refusing_gate", "--junit-xml", report)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, *PLACES.values()], cwd=ROOT, timeout=300, check=False
    )
    cases = list(ElementTree.parse(report).iter("testcase"))
    assert len(cases) == len(PLACES)
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    refused = {
        found.get("value") for case in failed for found in case.iter("property") if found.get("name") == "refused"
    }
    assert refused == PLACES.keys()
