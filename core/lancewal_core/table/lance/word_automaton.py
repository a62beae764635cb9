"""The words of a full text index as Lance stores them: an automaton of the Rust crate ``fst``, version 3.

A node has transitions, each with a byte and a target node.  A node's bytes are read backwards from its address.  Its
first byte says which form it has: one transition to the node stored right before it, one to another node, or any
number.  The crate also stores a number with each transition, which is not used here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_COMMON = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG"
"""Common bytes, which a node with one transition may name by their number in this list, from 1 on."""
_VERSION = 3
_INDEX_FROM = 33
"""Least number of transitions with which a node has an index of 256 bytes, which is not used here."""
_HEAD, _FOOT = 16, 20
_NEXT, _ONE, _FORM = 0b11000000, 0b10000000, 0b11000000


class WordAutomaton:
    """Automaton of the words of an index.  ``data``: its stored bytes.  Raise ``ValueError`` for bytes of another
    form."""

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEAD + _FOOT or int.from_bytes(data[:8], "little") != _VERSION:
            raise ValueError(f"these {len(data)} bytes are not a word automaton of version {_VERSION}")
        self._data = data
        self._words = int.from_bytes(data[-20:-12], "little")
        self._root = int.from_bytes(data[-12:-4], "little")
        if self._words and self._root + _FOOT + 1 != len(data):
            raise ValueError("the first node of a word automaton does not lie right before its end")

    def near(self, word: str, distance: int, prefix: int) -> Iterator[str]:
        """Yield the words that are at most ``distance`` edits from ``word`` and begin with its first ``prefix``
        letters.

        To insert, delete or change a letter is one edit.  A letter is a Unicode character."""
        if not self._words:
            return
        begin = word[:prefix]
        # Each way has its node, its letters so far, bytes of a letter that is not whole, and the distances of its letters
        # to each beginning of the word.
        ways: list[tuple[int, str, bytes, Sequence[int]]] = [(self._root, "", b"", range(len(word) + 1))]
        while ways:
            node, letters, begun, row = ways.pop()
            final, arrows = self._node(node)
            if final and not begun and row[-1] <= distance and letters.startswith(begin):
                yield letters
            for byte, target in arrows:
                part = begun + bytes([byte])
                if len(part) < _length(part[0]):
                    ways.append((target, letters, part, row))
                    continue
                letter = part.decode()
                if len(letters) < len(begin) and begin[len(letters)] != letter:
                    continue
                below = next_row(row, word, letter)
                if min(below) <= distance:
                    ways.append((target, letters + letter, b"", below))

    def _node(self, at: int) -> tuple[bool, list[tuple[int, int]]]:
        """Return whether a word ends at the node with address ``at``, and its transitions: a byte and a target address
        each."""
        if not at:
            return True, []
        data, state = self._data, self._data[at]
        form, told = state & _FORM, state & 0b00111111
        if form in (_NEXT, _ONE):
            byte = _COMMON[told - 1] if told else data[at - 1]
            end = at - (0 if told else 1)
            if form == _NEXT:
                return False, [(byte, end - 1)]
            target, number = data[end - 1] >> 4, data[end - 1] & 0xF
            end -= 1 + target
            return False, [(byte, self._target(end, target, end - number))]
        final = bool(state & 0b01000000)
        count, begin = (told, at) if told else (data[at - 1], at - 1)
        if not told and count == 1:
            count = 256
        target, number = data[begin - 1] >> 4, data[begin - 1] & 0xF
        inputs = begin - 1 - (256 if count >= _INDEX_FROM else 0)
        targets = inputs - count
        end = targets - count * target - (count + final) * number
        return final, [
            (data[inputs - i - 1], self._target(targets - (i + 1) * target, target, end)) for i in range(count)
        ]

    def _target(self, at: int, size: int, end: int) -> int:
        apart = int.from_bytes(self._data[at : at + size], "little")
        return end - apart if apart else 0


def next_row(row: Sequence[int], word: str, letter: str) -> list[int]:
    """Return the next row of the table of edit distances.

    ``row``: the distance of a text to each beginning of ``word``, the empty one first.  The result has the distances of
    the text with ``letter`` added."""
    found = [row[0] + 1]
    for at, other in enumerate(word):
        found.append(min(row[at] + (other != letter), row[at + 1] + 1, found[at] + 1))
    return found


def _length(first: int) -> int:
    """Return the number of bytes of a letter in UTF-8, by its first byte."""
    return 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
