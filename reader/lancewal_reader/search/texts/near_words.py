"""Expand a fuzzy query to the words of the texts that are near to its words.

A fuzzy query finds all words of the state's texts within its distance, up to ``NEAR_MAX``.  Lance's own fuzzy query
takes only 50 of them, from its index alone.  It leaves out all rows that the index does not cover.  The distance is
between words as the tokenizer makes them, of a text and of the query alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lancewal_core.errors import SearchUnsupported
from lancewal_core.table.lance.word_automaton import next_row
from lancewal_reader.search.texts.text_query import FUZZINESS_MAX, Match
from lancewal_reader.search.texts.words import Tokenizer

NEAR_MAX = 1_000
"""Largest number of near words of one word that a search may have.  An index is asked for each of them separately."""
_ENDINGS = ("", "e", "s", "y", "ing", "ed", "ly", "es")


def distance_of(word: str, fuzziness: int | None) -> int:
    """Return ``fuzziness``, or, if it is None, the distance that Lance documents for a word of this length."""
    if fuzziness is not None:
        return fuzziness
    return 0 if len(word) <= 2 else 1 if len(word) <= 5 else FUZZINESS_MAX


def near_among(words: Iterable[str], word: str, distance: int, prefix: int) -> set[str]:
    """Return the ``words`` at an edit distance (``apart``) of at most ``distance`` from ``word`` that share its first
    ``prefix`` letters.
    """
    letters, begin = set(word), word[:prefix]
    return {
        other
        for other in words
        if abs(len(other) - len(word)) <= distance
        and other.startswith(begin)
        and len(letters.symmetric_difference(other)) <= 2 * distance
        and apart(word, other) <= distance
    }


def apart(word: str, other: str) -> int:
    """Return the edit distance: the number of letters to insert, delete or replace to turn one word into the other."""
    row: list[int] = list(range(len(word) + 1))
    for letter in other:
        row = next_row(row, word, letter)
    return row[-1]


def check_few(query: Match, word: str, near: set[str]) -> None:
    """Raise ``SearchUnsupported`` if there are too many near words to search for each."""
    if len(near) > NEAR_MAX:
        raise SearchUnsupported(
            f"text: {len(near):,} words are near to {word!r}, more than {NEAR_MAX:,}: ask with less than fuzziness "
            f"{query.fuzziness}, or with a prefix_length"
        )


def piece_of(tokenizer: Tokenizer, word: str) -> str | None:
    """Return a text that the tokenizer turns into exactly this word; None if no such text is found.

    The word itself may not be such a text, because some tokenizers shorten a shortened word again.
    """
    for ending in _ENDINGS:
        for stem in dict.fromkeys((word, word[:-1] + "y" if word.endswith("i") else word)):
            if tokenizer.words(stem + ending) == [word]:
                return stem + ending
    return None


def are_those(tokenizer: Tokenizer, pieces: Mapping[str, str]) -> bool:
    """Whether the tokenizer turns the pieces, joined by spaces, into exactly their words."""
    return tokenizer.words(" ".join(pieces.values())) == list(pieces)
