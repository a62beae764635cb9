"""Texts as words, by Lance's own tokenizer with an index's parameters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
"""Array with one int32 for each word of many texts.  It is half as large as one of int64, and searched in half the
time.
"""
Scores = npt.NDArray[np.float64]
WORDS_MAX = 4_000_000
"""Largest number of words of texts that are remembered, since each search looks at unmerged rows again."""
VOCABULARY_MAX = 1_000_000
_NO_WORDS: Words = np.zeros(0, np.int32)
QUERIES_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class _Text:
    words: Words
    """Numbers of the text's words in the vocabulary."""
    places: Words
    """Places of the words in the text, ascending.  Words that the tokenizer leaves out leave gaps."""


@dataclass(frozen=True, slots=True)
class Postings:
    """The texts that have a word."""

    texts: Words
    """Numbers of the texts that have the word, ascending and distinct."""
    counts: Words
    """How often each of these texts has the word."""

    def __len__(self) -> int:
        return len(self.texts)


class Texts:
    """Tokenized texts, in order.

    The positions of a word are computed when they are first needed, and cached.  Together the cache holds at most one
    position for each word of the texts.
    """

    def __init__(self, lengths: Numbers, words: Words, places: Words, vocabulary: Mapping[str, int]) -> None:
        self.lengths = lengths
        self.vocabulary = vocabulary
        self._words = words
        self._places = places
        self._text_of = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        self._postings: dict[str, Postings] = {}
        self._slots: dict[str, Numbers] = {}

    @staticmethod
    def of(texts: Sequence[_Text], vocabulary: Mapping[str, int]) -> Texts:
        return Texts(
            np.array([len(text.words) for text in texts], np.int64),
            np.concatenate([_NO_WORDS, *(text.words for text in texts)]),
            np.concatenate([_NO_WORDS, *(text.places for text in texts)]),
            vocabulary,
        )

    def taken(self, more: Texts, at: Numbers) -> Texts:
        """Return the texts at the indexes ``at``.  Indexes after those of this value refer to ``more``."""
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
        """Return the words that at least one text has."""
        wanted = np.unique(self._words)
        words = list(self.vocabulary)  # numbered as they came
        return [words[number] for number in wanted.tolist()]

    def postings(self, word: str) -> Postings:
        found = self._postings.get(word)
        if found is None:
            if word not in self.vocabulary:
                return _NOWHERE
            texts = self._text_of[self._standing(word)]
            first = np.flatnonzero(np.diff(texts, prepend=np.int32(-1)))
            counts = np.diff(first, append=len(texts)).astype(np.int32)
            found = self._postings[word] = Postings(texts[first], counts)
        return found

    def have_phrase(self, phrase: Sequence[tuple[str, int]]) -> Words:
        """Return the numbers of the texts that contain these words at the given distances, ascending, without
        duplicates.
        """
        rarest, *others = sorted(set(phrase), key=lambda item: len(self._slots_of(item[0])))
        slots, postings = self._slots_of(rarest[0]), self.postings(rarest[0])
        texts = np.repeat(postings.texts, postings.counts)
        for word, place in others:
            if not len(texts):
                break
            apart, having = place - rarest[1], self.postings(word)
            before, behind = max(-apart, 0), max(apart, 0)
            text_at = np.full(before + int(self._first_slots[-1]) + behind, -1, np.int32)
            text_at[self._slots_of(word) + before] = np.repeat(having.texts, having.counts)
            same = text_at[slots + (before + apart)] == texts  # else the place is one of another text, or of no text
            slots, texts = slots[same], texts[same]
        return texts[np.flatnonzero(np.diff(texts, prepend=np.int32(-1)))]

    def _standing(self, word: str) -> Numbers:
        """Return the indexes of a word among the words of all texts, ascending."""
        return np.flatnonzero(self._words == self.vocabulary.get(word, -1))

    def _slots_of(self, word: str) -> Numbers:
        """Return the slots of a word, ascending; each place of each text has a slot."""
        found = self._slots.get(word)
        if found is None:
            at = self._standing(word)
            found = self._first_slots[self._text_of[at]] + self._places[at]
            if word in self.vocabulary:
                self._slots[word] = found
        return found

    @cached_property
    def _first_slots(self) -> Numbers:
        """First slot of each text, and the end of the last one.  A text has one slot for each place, including those of
        words left out."""
        sizes = np.zeros(len(self) + 1, np.int64)
        some = np.flatnonzero(self.lengths)
        if len(some):
            begins = np.cumsum(self.lengths) - self.lengths
            sizes[some + 1] = np.maximum.reduceat(self._places, begins[some]) + 1
        return np.cumsum(sizes)


class Tokenizer:
    """Tokenizer of one index.  Threads may share it."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = dict(parameters)
        self._lock = Lock()
        self._vocabulary: dict[str, int] = {}
        self._known: OrderedDict[str, _Text] = OrderedDict()
        self._words = 0
        self._asked: dict[str, Sequence[tuple[str, int]]] = {}

    def placed(self, text: str) -> Sequence[tuple[str, int]]:
        """Return the words of a query with their positions.  The result is cached, because a search needs it several
        times.
        """
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
            raise SearchUnsupported(
                f"Lance cannot split a text of the query or of a row into words: {first_line(error)}. Check the tokenizer "
                "of the column's text index"
            ) from error

    def words(self, text: str) -> list[str]:
        return [word for word, _ in self.placed(text)]

    def texts(self, column: pa.ChunkedArray) -> Texts:
        """Return the texts of a column, split into words; a null has none."""
        with self._lock:
            if len(self._vocabulary) > VOCABULARY_MAX:  # texts that were given out keep theirs
                self._vocabulary, self._known, self._words = {}, OrderedDict(), 0
            return Texts.of([self._text(text) for text in column.to_pylist()], self._vocabulary)

    def texts_again(self, column: pa.ChunkedArray, before: tuple[pa.ChunkedArray, Texts] | None) -> Texts:
        """Return the texts of a column, most of which are known.  ``before``: an earlier column and its texts, which
        are reused.
        """
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
_NOWHERE = Postings(_NO_WORDS, _NO_WORDS)


def single_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Mapping[str, str]:
    """Return for each word a text that the tokenizer turns into exactly this word.  Words without such a text are left
    out.
    """
    found: dict[str, str] = {}
    for text in texts:
        for piece in [*text.split(), *tokenizer.words(text)]:
            words = tokenizer.words(piece)
            if len(words) == 1:
                found.setdefault(words[0], piece)
    return found
