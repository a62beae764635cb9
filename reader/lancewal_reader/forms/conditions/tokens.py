"""The tokens of a condition, one after the other."""

from __future__ import annotations

import re
from typing import NoReturn

from lancewal_reader.forms.conditions.part import NotAccepted

_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*+'|"(?:[^"]|"")*+")|(?P<quoted>`(?:[^`]|``)*+`)|(?P<bytes>[xX]'[0-9a-fA-F]*')
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w))|(?P<name>[^\W\d]\w*)
    |(?P<sign>::|<<|>>|<=|>=|<>|!=|==|\|\||[-+*/%=<>()\[\],.;])""",
    re.VERBOSE,
)
_SPACE = re.compile(r"(?:\s|--[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/)*+")


class Tokens:
    """Tokens of a text.  ``kind`` is the kind of the next token (a group of ``_TOKEN``, or ``end``), and ``word`` is
    its text.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.seek(0)

    def seek(self, place: int) -> None:
        """Go to the token that begins at or after ``place``."""
        space = _SPACE.match(self._text, place)
        assert space is not None
        self.place = self._end = space.end()
        self.kind, self.word = "end", ""
        found = _TOKEN.match(self._text, self.place)
        if found is not None:
            self.kind, self.word, self._end = found.lastgroup or "", found[0], found.end()
        elif self.place < len(self._text):
            quote = self._text[self.place] in "'\"`"
            rest = self.rest()
            raise NotAccepted(f"the quote in {rest} is never closed" if quote else f"it has no meaning from {rest} on")

    def rest(self) -> str:
        if self.place == len(self._text):
            return "its end"
        return f"{self._text[self.place : self.place + 60]!r} (character {self.place + 1})"

    def expected(self, what: str) -> NoReturn:
        raise NotAccepted(f"expected {what} before {self.rest()}")

    def next(self) -> str:
        """Advance, and return the word of the token passed."""
        word = self.word
        self.seek(self._end)
        return word

    def at(self, *words: str) -> bool:
        return self.kind in ("name", "sign") and self.word.upper() in words

    def take(self, *words: str) -> bool:
        """Return whether the next token is one of the words.  If so, advance past it."""
        found = self.at(*words)
        if found:
            self.next()
        return found

    def expect(self, word: str) -> None:
        if not self.take(word):
            self.expected(repr(word))

    def take_all(self, pattern: re.Pattern[str]) -> str | None:
        """Advance past everything that the pattern matches, and return it."""
        found = pattern.match(self._text, self.place)
        if found is None:
            return None
        self.seek(found.end())
        return found[0]

    def unquoted(self) -> str:
        word = self.next()
        return word[1:-1].replace(word[0] * 2, word[0])

    def name(self) -> str:
        if self.kind == "quoted":
            return self.unquoted()
        if self.kind != "name":
            self.expected("a name")
        return self.next()
