"""Docstrings, and the rules of plain English that a machine can check.

1. A text does not begin with a word that needs its surroundings (``OPENINGS``).
2. A sentence has at most ``WORDS_MAX`` words.  A code span counts as one word.  Lists, tables and code blocks do not count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

OPENINGS = (
    "Of",
    "What",
    "Where",
    "Who",
    "Whoever",
    "Which",
    "Those",
    "These",
    "The same",
    "As",
    "That",
    "So",
    "It",
    "Its",
)
WORDS_MAX = 25

_OPENING = re.compile(rf"(?:{'|'.join(OPENINGS)})\b(?!-)")
_CODE = re.compile(r"``[^`]*``|`[^`]*`")
_SENTENCE_END = re.compile(r"(?<=[.!?])[)\"']*\s+(?=[^a-z])")
_LISTED = re.compile(r"^\s*(?:[-*|>#]|\d+\.\s|\+[-=]|={3,}|:\w+)")


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring and the name of what it describes: a module, class, function or field."""

    name: str
    line: int
    text: str


def docstrings(source: str, module: str) -> Iterator[Docstring]:
    """Yield all docstrings of a module.  The text after an assignment is the docstring of what was assigned."""
    pending: list[tuple[ast.AST, str]] = [(ast.parse(source), module)]
    while pending:
        node, name = pending.pop()
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for at, statement in enumerate(body):
                if is_text(statement):
                    owner = name if at == 0 else f"{name}.{_assigned(body[at - 1])}"
                    yield Docstring(owner, statement.lineno, ast.literal_eval(statement.value))
        for child in ast.iter_child_nodes(node):
            inner = getattr(child, "name", None)
            named = isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            pending.append((child, f"{name}.{inner}" if named else name))


def is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a text alone: a docstring of what stands around or before it."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def messages(source: str) -> Iterator[Docstring]:
    """Yield the texts of several words that code holds, each by the line where it begins: errors, help, log events, causes,
    metrics.  Patterns, and lists of names that begin with a line break, are none."""
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        match node:
            case ast.Expr() if is_text(node):
                continue
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"))):
                continue
            case ast.Constant() | ast.JoinedStr() | ast.BinOp(op=ast.Add()) if text := _spoken(node):
                if " " in text and not text.startswith("\n"):
                    yield Docstring("", node.lineno, text)
                if not isinstance(node, ast.JoinedStr):
                    continue
                pending += [part for part in node.values if isinstance(part, ast.FormattedValue)]
            case _:
                pending += ast.iter_child_nodes(node)


def _spoken(node: ast.expr) -> str:
    """A text as people read it; what is put into it stands as one code span."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(v.value) if isinstance(v, ast.Constant) else "`x`" for v in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _spoken(left) + _spoken(right)
        case _:
            return ""


def is_plain(text: str) -> bool:
    """Whether the text keeps both rules."""
    return not opens_badly(text) and not long_sentences(text)


def _assigned(statement: ast.stmt) -> str:
    match statement:
        case ast.Assign(targets=[target, *_]) | ast.AnnAssign(target=target):
            return ast.unparse(target)
        case _:
            return "?"


def opens_badly(text: str) -> bool:
    """Whether the text begins with one of ``OPENINGS``."""
    return _OPENING.match(text.strip()) is not None


def long_sentences(text: str) -> list[str]:
    """Return the sentences with more than ``WORDS_MAX`` words."""
    return [sentence for sentence in sentences(text) if len(sentence.split()) > WORDS_MAX]


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text.  A paragraph, a list item and a table row end a sentence too; the latter two are left
    out, with the lines that continue them."""
    for paragraph in re.split(r"\n\s*\n", text):
        prose: list[str] = []
        for line in paragraph.splitlines():
            if _LISTED.match(line):
                break
            prose.append(line.strip())
        joined = _CODE.sub("Code", " ".join(prose))
        yield from (sentence.strip() for sentence in _SENTENCE_END.split(joined) if sentence.strip())
