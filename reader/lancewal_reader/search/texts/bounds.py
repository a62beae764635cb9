"""The highest score that a row can have if an index has not shown it.

Lance shows the best rows by its own statistics.  A row that it did not show therefore has at most the score of the
last row shown.  A score is a sum of one part per word.  By the statistics of the state a part grows if the word has
become rarer, or if texts have become longer on average.  The bound takes the parts that grow most, each as large as
in any row, until together they reach the last score.  The grown parts add up to the bound.  A word whose rows
were all shown has no part in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lancewal_reader.search.texts.bm25 import K1, B
from lancewal_reader.search.texts.text_query import Boolean, Match, Phrase, TextQuery, columns_of
from lancewal_reader.search.texts.words import Tokenizer


@dataclass(frozen=True, slots=True)
class BoundPart:
    most: float
    """Highest score of the part in any row, by Lance's statistics."""
    grows: float
    """Largest factor by which that score can grow under the statistics of the state."""


def most_beyond(parts: Iterable[BoundPart], last: float) -> float:
    """Return the highest exact score that a row can have if Lance scores it at most ``last``.  Lance's statistics
    differ from the exact ones.
    """
    total = 0.0
    for part in sorted(parts, key=lambda part: -part.grows):
        taken = min(part.most, last)
        total += taken * part.grows
        last -= taken
    return total


def max_growth(longest: int, before: float, now: float) -> float:
    """Return the largest factor by which a word's score can grow when the average number of words changes from
    ``before`` to ``now``.

    The text has at most ``longest`` words.
    """
    held, larger = (1 + K1 * (1 - B + B * longest / max(average, 1e-9)) for average in (now, before))
    return max(1.0, larger / held)


def words_summed(query: TextQuery, tokenizers: Mapping[str, Tokenizer]) -> Counter[tuple[str, str]]:
    """Return, by column and word, how often the word's score can be added to a row's score.  ``query`` must be a query
    for an index (``shown_by_index``).
    """
    found: Counter[tuple[str, str]] = Counter()
    match query:
        case Match() | Phrase():
            times = query.boost if isinstance(query, Match) else 1
            for name in columns_of(query):
                for word in tokenizers[name].words(query.words):
                    found[name, word] += times  # type: ignore[assignment] # a boost is no whole number
        case Boolean(must, should, _):
            for clause in (*must, *should):
                found.update(words_summed(clause, tokenizers))
        case _:
            raise AssertionError(query)
    return found
