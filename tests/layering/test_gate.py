"""Whoever folds or composes rows takes them from the gate (``lancewal_core.rows.projection.rows_as``).

``PLACES`` has every function outside of ``lancewal_core.rows`` that folds, and a test that fails where the gate refuses
the rows of that function alone.  A new place gets its rows from the gate, and a line here.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
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
    "lancewal_core.region.flush:_content": (
        "tests/core/region/test_flush.py::test_the_flush_is_the_fold_from_memory_as_from_the_log[0]"
    ),
    "lancewal_flusher.merge.finish:_rebuild": (
        "tests/flusher/merge/test_finish.py::test_adopted_files_lost_between_check_and_commit_are_rebuilt"
    ),
    "lancewal_flusher.merge.finish:_taken_keys": (
        "tests/flusher/merge/test_finish.py::test_a_flusher_that_finishes_what_is_finished_and_trimmed[False]"
    ),
    "lancewal_flusher.merge.region_input:_combine": (
        "tests/flusher/merge/test_merge.py::test_several_small_generations_become_one_fragment"
    ),
    "lancewal_ingest.regions.flush_queue:_folded": (
        "tests/ingest/regions/test_beside_a_seal.py::test_a_seal_that_landed_though_nobody_said_so_is_found"
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
