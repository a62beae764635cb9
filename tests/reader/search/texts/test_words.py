"""Texts that are mostly those of a column before are taken apart as all texts are."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from lancewal_reader.search.texts import words
from lancewal_reader.search.texts.words import Texts, Tokenizer

BEFORE = ["one two two", None, "", "three one", "one two two", "five five one"]
SOME = ["one", "two", "the", "five"]
WORDS = ("one", "two", "three", "four", "five", "nowhere")


def column(texts: Sequence[str | None]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts[:2], pa.string()), pa.array(texts[2:], pa.string())])


def counts(texts: Texts, word: str) -> list[int]:
    found = [0] * len(texts)
    postings = texts.postings(word)
    for text, count in zip(postings.texts.tolist(), postings.counts.tolist(), strict=True):
        found[text] = count
    return found


def told(texts: Texts) -> object:
    phrases = ([("one", 0), ("two", 1)], [("two", 0), ("two", 1)], [("four", 0), ("one", 1)])
    return (
        texts.lengths.tolist(),
        {word: counts(texts, word) for word in WORDS},
        [texts.have_phrase(phrase).tolist() for phrase in phrases],
        sorted(texts.distinct()),
    )


@pytest.mark.parametrize(
    "now",
    [
        BEFORE,
        ["four one", *BEFORE[::-1], None, "one two two", "four one"],
        ["five five one"],
        [None, "two two four one"],
        [],
    ],
)
def test_they_are_those_of_all_texts(now: list[str | None]) -> None:
    tokenizer = Tokenizer({"stem": False, "remove_stop_words": False})
    before = column(BEFORE)
    again = tokenizer.texts_again(column(now), (before, tokenizer.texts(before)))
    assert told(again) == told(Tokenizer({"stem": False, "remove_stop_words": False}).texts(column(now)))


def test_only_new_ones_are_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "WORDS_MAX", 0)  # nothing is remembered by itself
    tokenizer = Tokenizer({})
    before = column(BEFORE)
    known = tokenizer.texts(before)
    asked: list[str] = []
    placed = Tokenizer._placed

    def counted(self: Tokenizer, text: str) -> Sequence[tuple[str, int]]:
        asked.append(text)
        return placed(self, text)

    monkeypatch.setattr(Tokenizer, "_placed", counted)
    tokenizer.texts_again(column([*BEFORE, "four"]), (before, known))
    assert asked == ["four"]


def test_words_are_numbered_anew_where_they_became_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer({"stem": False, "remove_stop_words": False})
    before, now = column(BEFORE), column(["four four one", "five five one"])
    known = tokenizer.texts(before)
    right = told(known)
    monkeypatch.setattr(words, "VOCABULARY_MAX", 1)
    again = tokenizer.texts_again(now, (before, known))
    assert counts(again, "one") == [1, 1]
    assert counts(again, "five") == [0, 2]
    assert told(known) == right


def test_phrases_are_found_where_they_stand_and_nowhere_else() -> None:
    """By looking at each text, of few words, so that phrases often end one text and begin the next."""
    rng = random.Random(7)
    texts: list[str | None] = [" ".join(rng.choices(SOME, k=rng.randint(0, 5))) for _ in range(300)]
    for stop_words in (False, True):  # those that are left out leave gaps, in texts and in phrases
        tokenizer = Tokenizer({"stem": False, "remove_stop_words": stop_words})
        phrases = [tokenizer.placed(" ".join(rng.choices(SOME, k=rng.randint(1, 4)))) for _ in range(60)]
        for some in (texts, *([text, None] for text in texts[:40])):
            found = tokenizer.texts(column(some))
            placed = [tokenizer.placed(text or "") for text in some]
            for phrase in filter(None, phrases):
                right = [at for at, text in enumerate(placed) if _stands(phrase, text)]
                assert found.have_phrase(phrase).tolist() == right


def _stands(phrase: Sequence[tuple[str, int]], text: Sequence[tuple[str, int]]) -> bool:
    there = set(text)
    return any(all((word, place + begin) in there for word, place in phrase) for begin in range(-5, 10))
