"""The product's texts keep the rules of ``texts``, but for as many as ``CEILINGS`` says: these numbers only fall."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.measure import compared, texts
from tests.measure.__main__ import breaches
from tests.measure.compared import Changed
from tests.measure.tree import part_of, product, read_tree

CEILINGS = {
    ("audit", "docstring"): 14,
    ("core", "docstring"): 471,
    ("flusher", "docstring"): 226,
    ("ingest", "docstring"): 53,
    ("reader", "docstring"): 76,
    ("tables", "docstring"): 16,
}
"""Part and kind -> how many texts break a rule.  Whoever makes them fewer writes the new number here."""


def test_no_part_has_more_texts_that_break_a_rule() -> None:
    found = Counter((part_of(line), line.rpartition(" ")[2]) for line in breaches(product(read_tree())))
    assert dict(found) == CEILINGS, "fewer: write the new number; more: say it in plain English"


MODULE = '''"""Module."""

LIMIT = 3
"""Most that there are (``x``, 7)."""


def f(a):
    """Return ``a`` and 1."""
    raise ValueError(f"cannot read {a}: try again")
'''


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (MODULE.replace("Return ``a``", "Give back ``a``"), "words"),
        (MODULE.replace('"""Module."""', ""), "words"),
        (MODULE.replace("LIMIT = 3", "LIMIT = 3  # most"), "words"),
        (MODULE.replace("cannot read {a}: try again", "{a} cannot be read: try later"), "messages"),
        (MODULE.replace("{a}: try again", "{b}: try again"), "code"),
        (MODULE.replace("LIMIT = 3", "LIMIT = 4"), "code"),
        ("", "code"),
    ],
)
def test_how_far_a_change_goes(now: str, expected: str) -> None:
    assert compared.level(Changed("a.py", MODULE, now)) == expected


def test_what_came_and_went() -> None:
    now = MODULE.replace("``x``, 7", "``y``, 7").replace("``a`` and 1", "``a`` and 2")
    assert list(compared.came_and_went(Changed("a.py", MODULE, now))) == [
        "a.py.LIMIT: - ``x``  + ``y``",
        "a.py.f: - 1  + 2",
    ]
    page = "# Head\n\n1. See [x](a.md) and `b`.\n"
    assert list(compared.came_and_went(Changed("p.md", page, page.replace("See", "Look at")))) == []
    assert list(compared.came_and_went(Changed("p.md", page, "# Tail\n\nSee `b`.\n"))) == [
        "p.md: - # Head  - 1  - ](a.md)  + # Tail"
    ]


def test_messages_are_found() -> None:
    source = (
        'raise E(f"of {a} '
        + '" "all is gone", object=1)\nevents = warning("It waits.", "x")\nOption(help="Of what?")\n'
    )
    found = [(one.line, one.text) for one in texts.messages(source)]
    assert sorted(found) == [(1, "of `x` all is gone"), (2, "It waits."), (3, "Of what?")]
    assert [texts.is_plain(text) for _, text in sorted(found)] == [True, False, False]
