"""The figures are those of sources whose figures are known."""

from __future__ import annotations

import pytest

from tests.measure import structure, texts
from tests.measure.__main__ import report
from tests.measure.lines import Lines, count
from tests.measure.seconds import Taken, by_folder
from tests.measure.tree import product, read_tree

SOURCE = '''"""A module.

Two paragraphs.
"""

import os  # an import

# A comment.
NAME = """
a string
"""
"""A docstring."""


def f() -> None:
    """One line."""
'''


def test_lines_are_counted_by_what_they_hold() -> None:
    assert count(SOURCE) == Lines(code=5, docstring=6, comment=1, blank=4)


def test_docstrings_of_modules_functions_and_fields_are_found() -> None:
    found = [(one.name, one.text.partition("\n")[0]) for one in texts.docstrings(SOURCE, "m")]
    assert found == [("m", "A module."), ("m.NAME", "A docstring."), ("m.f", "One line.")]


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("Of one partition.", True),
        ("The same, unpacked.", True),
        ("As-is copies.", False),
        ("Ofsted.", False),
        ("Item by item.", False),
        ("The samples.", False),
        ("\nWhat it does.", True),
        ("Return what it does.", False),
    ],
)
def test_openings(text: str, bad: bool) -> None:
    assert texts.opens_badly(text) is bad


def test_long_sentences() -> None:
    long, short = " ".join(["Word"] * 26) + ".", " ".join(["Word"] * 25) + "."
    assert texts.long_sentences(f"{short} {long} {short}") == [long]
    assert texts.long_sentences(f"{short}\n\n- {long}\n  {long}\n\n| {long} |\n\n{short}") == []
    assert texts.long_sentences(short.replace("Word.", "``a b c``.")) == [] != texts.long_sentences(f"A {short}")


FILES = {
    "core/a/__init__.py": "",
    "core/a/b.py": 'from a import c\n\nLATER = "d.e:F"\n\n\nclass F: ...\n\n\nclass _G: ...\n',
    "core/a/c.py": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import a.b\n\n\nclass _G: ...\n",
    "reader/d/e.py": "def f(a, b, c, d, e, f, g):\n    import a.b\n\n\nclass F: ...\n",
}


def test_circles_go_through_functions_and_names_and_not_through_types() -> None:
    arrows = structure.imported(FILES)
    assert arrows["core/a/c.py"] == set()
    assert structure.circles(arrows) == [["core/a/b.py", "reader/d/e.py"]]
    assert structure.arrows_upwards(arrows) == [("core", "reader")]


def test_folders_names_and_parameters() -> None:
    assert structure.folders(FILES) == {"core": 1, "core/a": 2, "reader": 1, "reader/d": 1}
    assert structure.names_used_twice(FILES) == {"F": ["core/a/b.py", "reader/d/e.py"]}
    assert structure.many_parameters(FILES) == ["d.e.f"]


def test_seconds_are_summed_by_folder() -> None:
    kept = '{"tests/a/b/test_x.py": [2, 1.5, 1.0], "tests/a/test_y.py": [1, 0.5, 0.0], "tests/c/test_z.py": [1, 1, 1]}'
    assert by_folder({"tests/measure/seconds.json": kept}) == {"a": Taken(3, 2.0, 1.0), "c": Taken(1, 1, 1)}
    assert by_folder({}) == {}


def test_this_checkout_is_measured() -> None:
    tree = {name: text for name, text in read_tree().items() if name.startswith("kafka/")}
    lines = list(report(tree))
    assert any(line.startswith("kafka ") for line in lines)
    assert any(line.startswith("docstrings: ") for line in lines)
    assert any(line.startswith("circles of imports: ") for line in lines)


def test_a_commit_that_is_not_there_is_an_error() -> None:
    with pytest.raises(LookupError, match="no-such-commit"):
        read_tree("no-such-commit")


def test_a_class_of_the_product_has_a_name_of_its_own() -> None:
    """Else a reader of two modules takes one for the other."""
    assert structure.names_used_twice(product(read_tree())) == {}
