"""Words near to others by the automaton that Lance stores, against a comparison with each of its words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from lancewal_core.table.lance.word_automaton import WordAutomaton, next_row

LETTERS = "abcdefghijklmnopqrstuvwxyzäöüßéжшщ漢字\U0001d4b30123456789ABCXYZ_"


def stored(folder: Path, words: list[str]) -> bytes:
    texts = [" ".join(words[at : at + 20]) for at in range(0, len(words), 20)]
    dataset = lance.write_dataset(pa.table({"text": texts}), folder)
    as_they_are: dict[str, Any] = {
        "stem": False,
        "remove_stop_words": False,
        "ascii_folding": False,
        "lower_case": False,
    }
    dataset.create_scalar_index("text", "INVERTED", base_tokenizer="whitespace", **as_they_are)
    (file,) = folder.glob("_indices/*/part_*_tokens.lance")
    return bytes(LanceFileReader(str(file)).read_all().to_table()["_token_fst_bytes"][0].as_py())


def edits(word: str, other: str) -> int:
    row: list[int] = list(range(len(word) + 1))
    for letter in other:
        row = next_row(row, word, letter)
    return row[-1]


def test_words_are_found_by_their_distance(tmp_path: Path) -> None:
    """Nodes of all forms: of one arrow to the next node or elsewhere, of few arrows, and of more than 32."""
    rng = random.Random(5)
    words = sorted({"".join(rng.choices(LETTERS, k=rng.choice([1, 2, 2, 3, 4, 9]))) for _ in range(1_500)})
    automaton = WordAutomaton(stored(tmp_path / "t", words))
    assert sorted(automaton.near("", 20, 0)) == words
    for word in [*rng.sample(words, 5), "漢ab", "", "a" * 12]:
        for distance in (0, 1, 2):
            for prefix in (0, 1, 3):
                right = [w for w in words if edits(word, w) <= distance and w.startswith(word[:prefix])]
                assert sorted(automaton.near(word, distance, prefix)) == right


def test_distances_are_numbers_of_letters() -> None:
    known = {("kitten", "sitting"): 3, ("flaw", "lawn"): 2, ("", "abc"): 3, ("abc", "abc"): 0, ("ab", "ba"): 2}
    assert {pair: edits(*pair) for pair in known} == known


def test_bytes_of_another_form_are_refused(tmp_path: Path) -> None:
    data = stored(tmp_path / "t", ["one", "two"])
    for wrong in (b"", data[:30], b"\x04" + data[1:], data + b"\0"):
        with pytest.raises(ValueError, match="word automaton"):
            WordAutomaton(wrong)
