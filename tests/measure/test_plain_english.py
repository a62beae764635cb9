"""The product's texts keep the rules of ``texts``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.measure import compared, texts, tree
from tests.measure.__main__ import breaches, main
from tests.measure.compared import Changed
from tests.measure.tree import product, read_tree


def test_every_text_keeps_the_rules() -> None:
    assert list(breaches(product(read_tree()))) == [], "say it in plain English"


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


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ('key = f"{table}/wal/{name}.json"', 'key = f"{table}/log/{name}.json"'),
        ('key = f"{table}/{name}"', 'key = f"{name}/{table}"'),
        ('query = "select a from t"', 'query = "select b from t"'),
        ('query = f"SELECT a FROM {t}"', 'query = f"SELECT b FROM {t}"'),
        ('pattern = re.compile("not found|is gone")', 'pattern = re.compile("not found|was gone")'),
        ('gone = "not found" in str(error)', 'gone = "was not found" in str(error)'),
        ('gone = text.startswith("not found")', 'gone = text.startswith("was not found")'),
        ('warn("merge_failed", "The merge failed.")', 'warn("merge_lost", "The merge failed.")'),
    ],
)
def test_texts_that_decide_something_are_code(before: str, now: str) -> None:
    assert compared.level(Changed("core/a.py", before, now)) == "code"


@pytest.mark.parametrize("line", ['assert "{} here" in told', 'pytest.raises(E, match="{} here")'])
def test_a_test_that_matches_on_a_message_may_change_with_it(line: str) -> None:
    assert compared.level(Changed("tests/test_a.py", line.format("was"), line.format("is"))) == "messages"


def test_facts_are_found_however_a_text_is_wrapped() -> None:
    page = "See ``a\nb``, <https://x.y/z> and:\n\n```\nf `g`\n```\n"
    assert (
        list(compared.came_and_went(Changed("p.md", page, page.replace("a\nb", "a b").replace("See", "Look at")))) == []
    )
    now = page.replace("``a\nb``", "``a\nc``").replace("y/z", "y/w").replace("f `g`", "f `h`")
    assert list(compared.came_and_went(Changed("p.md", page, now))) == [
        "p.md: - ``` f `g` ```  - ``a b``  - https://x.y/z  + ``` f `h` ```  + ``a c``  + https://x.y/w"
    ]


def test_a_getter_and_its_setter_are_both_read() -> None:
    both = 'class A:\n @property\n def x(self):\n  """Get 1."""\n @x.setter\n def x(self, v):\n  """Set 2."""\n'
    for old, new in (("1", "3"), ("2", "3")):
        told = list(compared.came_and_went(Changed("a.py", both, both.replace(old, new))))
        assert told == [f"a.py.A.x: - {old}  + {new}"]


def test_a_commit_that_is_not_there_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prose", "no-such-commit"]) == 2
    assert "no-such-commit" in capsys.readouterr().err


def test_a_file_that_git_does_not_know_yet_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    for command in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "a"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "new.py").write_text("X = 1\n")
    monkeypatch.setattr(tree, "ROOT", tmp_path)
    assert compared.report("HEAD", "messages") == (["new.py: code changed"], 1)


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


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('raise E(f"of {a} " + "all is gone", object=1)', ["of `x` all is gone"]),
        ('events = warning("It waits.", "x")', ["It waits."]),
        ('Option(help="Of what?")', ["Of what?"]),
        ('C = Cause("stopped", "Its owner stopped.")', ["Its owner stopped."]),
        ('def f():\n """Of a."""\n return E("It is gone")', ["It is gone"]),
        ('seconds = gauge("What it took.", "a")', ["What it took."]),
        ("a = f\"{b}: {c if c else 'It is gone'}\"", ["`x`: `x`", "It is gone"]),
        ('a = re.compile("It is|gone")\nNAMES = """\n  a b\n""".split()', []),
    ],
)
def test_messages_are_found(source: str, expected: list[str]) -> None:
    assert [one.text for one in texts.messages(source)] == expected


@pytest.mark.parametrize(("text", "plain"), [("`x` is gone", True), ("It is gone", False), ("a " * 26, False)])
def test_a_message_is_plain(text: str, plain: bool) -> None:
    assert texts.is_plain(text) is plain
