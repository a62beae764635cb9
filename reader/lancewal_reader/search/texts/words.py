"""Texts as words, by Lance's own tokenizer with an index's parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.lance import tokenize

from lancewal_core.errors import SearchUnsupported
from lancewal_core.process.library_errors import first_line

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.int32]
"""One a word of many texts: half as large, and looked through in half the time."""
Scores = npt.NDArray[np.float64]
WORDS_MAX = 4_000_000
"""Words of texts that are remembered, at most: what is unmerged is looked at again by each search."""
VOCABULARY_MAX = 1_000_000
_NO_WORDS: Words = np.zeros(0, np.int32)
QUERIES_KEPT = 1_000
COUNTS_KEPT = 32
"""Words whose counts some texts keep: a search asks for each several times."""


@dataclass(frozen=True, slots=True)
class _Text:
    words: Words
    """Their numbers in the vocabulary."""
    places: Words
    """Ascending; words that are left out leave gaps."""


class Texts:
    """Some texts, one after the other."""

    def __init__(self, lengths: Numbers, words: Words, places: Words, vocabulary: Mapping[str, int]) -> None:
        self.lengths = lengths
        self.vocabulary = vocabulary
        self._words = words
        self._places = places
        self._text_of = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        self._counts: dict[str, Numbers] = {}

    @staticmethod
    def of(texts: Sequence[_Text], vocabulary: Mapping[str, int]) -> Texts:
        return Texts(
            np.array([len(text.words) for text in texts], np.int64),
            np.concatenate([_NO_WORDS, *(text.words for text in texts)]),
            np.concatenate([_NO_WORDS, *(text.places for text in texts)]),
            vocabulary,
        )

    def taken(self, more: Texts, at: Numbers) -> Texts:
        """Those with these numbers of the ones here and, behind them, of ``more``."""
        lengths = np.concatenate([self.lengths, more.lengths])
        begins = np.cumsum(lengths) - lengths
        lengths, begins = lengths[at], begins[at]
        here = np.arange(int(lengths.sum())) + np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
        words, places = (
            np.concatenate(both)[here] for both in ((self._words, more._words), (self._places, more._places))
        )
        return Texts(lengths, words, places, self.vocabulary)

    def __len__(self) -> int:
        return len(self.lengths)

    def distinct(self) -> Sequence[str]:
        """Words that some text has."""
        wanted = np.unique(self._words)
        words = list(self.vocabulary)  # numbered as they came
        return [words[number] for number in wanted.tolist()]

    def counts(self, word: str) -> Numbers:
        """How often each has it."""
        found = self._counts.get(word)
        if found is None:
            number = self.vocabulary.get(word)
            if number is None:
                return np.zeros(len(self), np.int64)
            found = np.bincount(self._text_of[self._words == number], minlength=len(self))
            if len(self._counts) < COUNTS_KEPT:
                self._counts[word] = found
        return found

    def have_phrase(self, phrase: Sequence[tuple[str, int]]) -> npt.NDArray[np.bool_]:
        """Which have these words, as far apart as these places are."""
        found = np.zeros(len(self), np.bool_)
        last = max(place for _, place in phrase)
        size = int(self._places.max(initial=0)) + last + 1
        each = [(np.flatnonzero(self._words == self.vocabulary.get(word, -1)), place) for word, place in phrase]
        begins: Numbers | None = None  # of each place where the phrase may begin: its text and the place, as one number
        for at, place in sorted(each, key=lambda item: len(item[0])):
            here = self._text_of[at].astype(np.int64) * size + self._places[at] + (last - place)  # ascending
            begins = here if begins is None else begins[_are_among(begins, here)]
        if begins is not None:
            found[begins // size] = True
        return found


def _are_among(numbers: Numbers, ascending: Numbers) -> npt.NDArray[np.bool_]:
    if not len(ascending):
        return np.zeros(len(numbers), np.bool_)
    at = np.searchsorted(ascending, numbers)
    return np.asarray(ascending[np.minimum(at, len(ascending) - 1)] == numbers)


class Tokenizer:
    """Of one index; threads may share it."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = dict(parameters)
        self._lock = Lock()
        self._vocabulary: dict[str, int] = {}
        self._known: OrderedDict[str, _Text] = OrderedDict()
        self._words = 0
        self._asked: dict[str, Sequence[tuple[str, int]]] = {}

    def placed(self, text: str) -> Sequence[tuple[str, int]]:
        """Words of a query, which are wanted several times, with their places."""
        found = self._asked.get(text)
        if found is None:
            found = self._placed(text)
            if len(self._asked) >= QUERIES_KEPT:
                self._asked = {}
            self._asked[text] = found
        return found

    def _placed(self, text: str) -> Sequence[tuple[str, int]]:
        try:
            return [(token.text, token.position) for token in tokenize(text, **self._parameters)]
        except (ValueError, OSError, RuntimeError) as error:
            raise SearchUnsupported(f"the words of a text cannot be told: {first_line(error)}") from error

    def words(self, text: str) -> list[str]:
        return [word for word, _ in self.placed(text)]

    def texts(self, column: pa.ChunkedArray) -> Texts:
        """Of a column of texts; a null has no words."""
        with self._lock:
            if len(self._vocabulary) > VOCABULARY_MAX:  # texts that were given out keep theirs
                self._vocabulary, self._known, self._words = {}, OrderedDict(), 0
            return Texts.of([self._text(text) for text in column.to_pylist()], self._vocabulary)

    def texts_again(self, column: pa.ChunkedArray, before: tuple[pa.ChunkedArray, Texts] | None) -> Texts:
        """The same; most of them are among those of a column ``before``, whose ``Texts`` are these."""
        if before is None:
            return self.texts(column)
        known = pc.fill_null(pc.index_in(column, before[0].combine_chunks()), -1).combine_chunks().to_numpy()
        new = np.flatnonzero(known < 0)
        more = self.texts(column.take(pa.array(new)))
        if more.vocabulary is not before[1].vocabulary:
            return self.texts(column)
        at = known.astype(np.int64)
        at[new] = len(before[1]) + np.arange(len(new))
        return before[1].taken(more, at)

    def _text(self, text: str | None) -> _Text:
        if text is None:
            return _NOTHING
        known = self._known.get(text)
        if known is None:
            placed = self._placed(text)
            numbers = [self._vocabulary.setdefault(word, len(self._vocabulary)) for word, _ in placed]
            known = _Text(np.array(numbers, np.int32), np.array([place for _, place in placed], np.int32))
            self._known[text] = known
            self._words += len(numbers) + 1
            while self._words > WORDS_MAX:
                self._words -= len(self._known.popitem(last=False)[1].words) + 1
        else:
            self._known.move_to_end(text)
        return known


_NOTHING = _Text(_NO_WORDS, _NO_WORDS)


def single_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Mapping[str, str]:
    """By each word something to ask an index for that is this word and no other; words that have none are left out."""
    found: dict[str, str] = {}
    for text in texts:
        for piece in [*text.split(), *tokenizer.words(text)]:
            words = tokenizer.words(piece)
            if len(words) == 1:
                found.setdefault(words[0], piece)
    return found
