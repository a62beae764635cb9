"""``python3 dev.py prose BASE``: what changed since a commit, where only words should have.

For each file that changed it says how far the change goes:

* ``words``: docstrings, comments, pages.  No test can change with it.
* ``messages``: texts inside the code too.  Tests that match on messages may change with it.
* ``code``: anything else.  The exit code is 1.  An object's key, a pattern, a query and a text that the product compares with
  others are code.

Then it prints every code span, number, link and heading that came or went, page by page and docstring by docstring.  A number
at the start of a line is that of a guarantee or a step.  A change of words alone has an empty print, or its commit says why
not.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.measure import tree
from tests.measure.texts import docstrings, is_text

LEVELS = ("words", "messages", "code")

_FACTS = re.compile(
    r"```.*?```|``(?:[^`\n]|\n(?!\s*\n))+``|`(?:[^`\n]|\n(?!\s*\n))+`"
    r"|\]\([^)]+\)|https?://[^\s)>]+|^#+ [^\n]*$|\d+(?:[.,:/]\d+)*",
    re.DOTALL | re.MULTILINE,
)
_QUERY = re.compile(
    r"\s*(?:select\s.*\sfrom\s|copy\s*\(|create\s(?:or replace\s)?(?:table|view)\s\w|insert into\s)", re.I | re.S
)
_READ_BY_CODE = frozenset(
    {"compile", "match", "fullmatch", "search", "findall", "sub", "split", "startswith", "endswith", "execute", "sql"}
)
"""Calls whose texts decide what the code does."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A file, its source at the base (empty for a new one) and now (empty for one that is gone)."""

    name: str
    before: str
    now: str


def changed(base: str) -> Iterator[Changed]:
    """Yield the Python files and pages that differ from the commit; a file that moved is compared with what it was."""
    listed = _text("diff", "--name-status", "--find-renames", base, "--", "*.py", "*.md")
    for line in listed.splitlines():
        status, old, new = [*line.split("\t"), ""][:3]
        new = new or old
        before = "" if status == "A" else _text("show", f"{base}:{old}")
        now = "" if status == "D" else (tree.ROOT / new).read_text()
        yield Changed(new, before, now)
    for new in _text("ls-files", "--others", "--exclude-standard", "--", "*.py").splitlines():
        yield Changed(new, "", (tree.ROOT / new).read_text())


def _text(*arguments: str) -> str:
    return tree.git(*arguments).decode()


def level(one: Changed) -> str:
    """How far the change goes, one of ``LEVELS``."""
    if one.name.endswith(".md"):
        return "words"
    before, now = (ast.parse(source) for source in (one.before, one.now))
    if _skeleton(before) == _skeleton(now):
        return "words"
    matching = not one.name.startswith("tests/")
    if _skeleton(before, _Messages(matching)) == _skeleton(now, _Messages(matching)):
        return "messages"
    return "code"


def _skeleton(tree: ast.Module, messages: _Messages | None = None) -> str:
    """The syntax tree as text, without docstrings; of a message only what is put into it is left, in any order."""
    without_docstrings = _Docstrings().visit(ast.parse(ast.unparse(tree)))
    return ast.dump(messages.visit(without_docstrings) if messages else without_docstrings)


class _Docstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if is_text(node) else self.generic_visit(node)


class _Messages(ast.NodeTransformer):
    """Take the words out of messages.  With ``matching``, texts that are compared or searched for are no messages."""

    def __init__(self, matching: bool) -> None:
        self.matching = matching

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return node if self.matching else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return node if self.matching and name in _READ_BY_CODE else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if isinstance(node.value, str) and _is_message(node.value) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        if not _is_message("".join(str(v.value) if isinstance(v, ast.Constant) else "x" for v in node.values)):
            return node
        put_in = sorted(ast.unparse(value) for value in node.values if isinstance(value, ast.FormattedValue))
        return ast.Constant(", ".join(put_in))


def _is_message(text: str) -> bool:
    return _QUERY.match(text) is None and re.search(r"[A-Za-z,.:]\s+[A-Za-z`'\"(]", text) is not None


def came_and_went(one: Changed) -> Iterator[str]:
    """Yield a line for each docstring, or for the page, whose facts differ."""
    before, now = _texts(one.name, one.before), _texts(one.name, one.now)
    for name in dict.fromkeys([*before, *now]):
        old, new = (Counter(_facts(texts.get(name, ""))) for texts in (before, now))
        parts = [f"- {fact}" for fact in sorted((old - new).elements())]
        parts += [f"+ {fact}" for fact in sorted((new - old).elements())]
        if parts:
            yield f"{name}: {'  '.join(parts)}"


def _facts(text: str) -> list[str]:
    """The facts, each on one line however the text is wrapped."""
    return [" ".join(fact.split()) for fact in _FACTS.findall(text)]


def _texts(file: str, source: str) -> Mapping[str, str]:
    """Name -> text: of a page its own name, of a module its docstrings' names.  A getter and its setter share one."""
    if file.endswith(".md"):
        return {file: source}
    found: dict[str, str] = {}
    for one in docstrings(source, file) if source else ():
        found[one.name] = f"{found.get(one.name, '')}\n\n{one.text}"
    return found


def report(base: str, allowed: str) -> tuple[list[str], int]:
    """Return the lines, and the exit code: 1 where a change goes further than ``allowed``."""
    lines, too_far = [], False
    for one in changed(base):
        found = level(one)
        if LEVELS.index(found) > LEVELS.index(allowed):
            lines.append(f"{one.name}: {found} changed")
            too_far = True
        lines += came_and_went(one)
    return lines, int(too_far)
