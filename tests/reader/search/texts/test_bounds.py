"""How high a row may score that was not shown, against all rows that there may be."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from lancewal_reader.search.texts.bounds import BoundPart, max_growth, most_beyond, words_summed
from lancewal_reader.search.texts.text_query import Boolean, Match, Phrase
from lancewal_reader.search.texts.words import Tokenizer


def test_no_row_has_more_and_some_row_has_as_much() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        parts = [BoundPart(float(rng.integers(1, 6)), float(rng.uniform(0.5, 2))) for _ in range(3)]
        last = float(rng.integers(0, 14))
        rows = product(*(range(int(part.most) + 1) for part in parts))
        right = max(
            sum(there * part.grows for there, part in zip(row, parts, strict=True)) for row in rows if sum(row) <= last
        )
        assert most_beyond(parts, last) == pytest.approx(right)


def test_no_text_grows_more() -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        (before, now), longest = rng.uniform(0.5, 20, 2), int(rng.integers(1, 40))
        texts = [(times, words) for words in range(1, longest + 1) for times in range(1, words + 1)]
        grown = [scored(*text, now) / scored(*text, before) for text in texts]
        assert max(grown) <= max_growth(longest, before, now) * (1 + 1e-12)
        assert max_growth(longest, before, now) == pytest.approx(max(1.0, *grown))


def scored(times: int, words: int, average: float) -> float:
    return times * 2.2 / (times + 1.2 * (0.25 + 0.75 * words / average))


def test_words_of_a_query_count_as_often_as_they_may_be_summed() -> None:
    tokenizers = {name: Tokenizer({"stem": False, "remove_stop_words": False}) for name in ("text", "title")}
    query = Boolean(
        must=[Match("a b a", ("text",), boost=2.0), Boolean(should=[Phrase("b c", "text")])],
        should=[Match("a", ("text", "title"))],
        must_not=[Match("d", ("text",))],
    )
    assert words_summed(query, tokenizers) == {
        ("text", "a"): 5.0, ("text", "b"): 3.0, ("text", "c"): 1.0, ("title", "a"): 1.0,
    }  # fmt: skip
