"""Lines of a Python file by what they hold.  A line that holds code and a comment counts as code."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass

_LAYOUT = frozenset(
    {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT}
)


@dataclass(frozen=True, slots=True)
class Lines:
    """Numbers of lines."""

    code: int = 0
    docstring: int = 0
    comment: int = 0
    blank: int = 0

    @property
    def all(self) -> int:
        return self.code + self.docstring + self.comment + self.blank

    def __add__(self, other: Lines) -> Lines:
        return Lines(
            self.code + other.code,
            self.docstring + other.docstring,
            self.comment + other.comment,
            self.blank + other.blank,
        )


def count(source: str) -> Lines:
    """Count the lines of one file.  A string that is a statement is a docstring, wherever it stands."""
    strings = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    docstring = {line for first, last in strings for line in range(first, last + 1)}
    code: set[int] = set()
    comment: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comment.add(token.start[0])
        elif token.type not in _LAYOUT:
            code |= set(range(token.start[0], token.end[0] + 1))
    code -= docstring
    comment -= code | docstring
    every = len(source.splitlines())
    return Lines(len(code), len(docstring), len(comment), every - len(code | docstring | comment))


def total(sources: Iterable[str]) -> Lines:
    """Sum the lines of several files."""
    return sum(map(count, sources), Lines())
