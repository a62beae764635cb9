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
from lance.lance import tokenize

from lancewal_core.errors import SearchUnsupported
from lancewal_core.process.library_errors import first_line

Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
WORDS_MAX = 4_000_000
"""Words of texts that are remembered, at most: what is unmerged is looked at again by each search."""
VOCABULARY_MAX = 1_000_000
COUNTS_KEPT = 32
"""Words whose counts some texts keep: a search asks for each several times."""


@dataclass(frozen=True, slots=True)
class _Text:
    words: Numbers
    """Their numbers in the vocabulary."""
    places: Numbers
    """Ascending; words that are left out leave gaps."""


class Texts:
    """Some texts, one after the other."""

    def __init__(self, texts: Sequence[_Text], vocabulary: Mapping[str, int]) -> None:
        self.lengths: Numbers = np.array([len(text.words) for text in texts], np.int64)
        self._vocabulary = vocabulary
        self._words = np.concatenate([np.zeros(0, np.int64), *(text.words for text in texts)])
        self._places = np.concatenate([np.zeros(0, np.int64), *(text.places for text in texts)])
        self._text_of = np.repeat(np.arange(len(texts)), self.lengths)
        self._counts: dict[str, Numbers] = {}

    def __len__(self) -> int:
        return len(self.lengths)

    def distinct(self) -> Sequence[str]:
        """Words that some text has."""
        wanted = np.unique(self._words)
        words = list(self._vocabulary)  # numbered as they came
        return [words[number] for number in wanted.tolist()]

    def counts(self, word: str) -> Numbers:
        """How often each has it."""
        found = self._counts.get(word)
        if found is None:
            number = self._vocabulary.get(word)
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
        begins: Numbers | None = None  # of each place where the phrase may begin: its text and the place, as one number
        for word, place in phrase:
            at = np.flatnonzero(self._words == self._vocabulary.get(word, -1))
            here = self._text_of[at] * size + self._places[at] + (last - place)
            begins = here if begins is None else begins[np.isin(begins, here)]
        if begins is not None:
            found[begins // size] = True
        return found


class Tokenizer:
    """Of one index; threads may share it."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = dict(parameters)
        self._lock = Lock()
        self._vocabulary: dict[str, int] = {}
        self._known: OrderedDict[str, _Text] = OrderedDict()
        self._words = 0

    def placed(self, text: str) -> list[tuple[str, int]]:
        """Words with their places."""
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
            texts = [self._text(text) for text in column.to_pylist()]
            return Texts(texts, self._vocabulary)

    def _text(self, text: str | None) -> _Text:
        if text is None:
            return _NOTHING
        known = self._known.get(text)
        if known is None:
            placed = self.placed(text)
            numbers = [self._vocabulary.setdefault(word, len(self._vocabulary)) for word, _ in placed]
            known = _Text(np.array(numbers, np.int64), np.array([place for _, place in placed], np.int64))
            self._known[text] = known
            self._words += len(numbers) + 1
            while self._words > WORDS_MAX:
                self._words -= len(self._known.popitem(last=False)[1].words) + 1
        else:
            self._known.move_to_end(text)
        return known


_NOTHING = _Text(np.zeros(0, np.int64), np.zeros(0, np.int64))


def single_words(tokenizer: Tokenizer, texts: Iterable[str]) -> Mapping[str, str]:
    """By each word something to ask an index for that is this word and no other; words that have none are left out."""
    found: dict[str, str] = {}
    for text in texts:
        for piece in [*text.split(), *tokenizer.words(text)]:
            words = tokenizer.words(piece)
            if len(words) == 1:
                found.setdefault(words[0], piece)
    return found
