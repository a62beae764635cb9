"""BM25 as Lance computes it, for any texts under any statistics.

A word has the weight ln((N - n + 0.5) / (n + 0.5) + 1) if n of N documents have it.  k1 is 1.2 and b 0.75.  A word
that a query names twice counts twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from lancewal_reader.search.texts.text_query import Boolean, Boost, Match, Near, Phrase, TextQuery, columns_of
from lancewal_reader.search.texts.words import Scores, Texts, Tokenizer

K1, B = 1.2, 0.75


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one column."""

    average: float
    """Mean number of words of a document."""
    weights: Mapping[str, float]


def weight(documents: int, having: int) -> float:
    return float(np.log((documents - having + 0.5) / (having + 0.5) + 1))


@dataclass(frozen=True, slots=True)
class TextColumn:
    """One column of some rows, with its statistics and its tokenizer."""

    texts: Texts
    statistics: Statistics
    tokenizer: Tokenizer


def scores(query: TextQuery, columns: Mapping[str, TextColumn]) -> Scores:
    """Return the BM25 score of each row; NaN for rows that do not match.  ``columns`` has each column that the query
    names."""
    match query:
        case Match(words, _, operator, boost):
            by_column = {name: [[word] for word in columns[name].tokenizer.words(words)] for name in columns_of(query)}
            return _best(by_column, operator == "and", columns) * boost
        case Near(groups, _, operator, boost):
            return _best(groups, operator == "and", columns) * boost
        case Phrase(words, _):
            (name,) = columns_of(query)
            column = columns[name]
            placed = column.tokenizer.placed(words)
            if not placed:
                return np.full(len(column.texts), np.nan)
            found = _words([[word] for word in column.tokenizer.words(words)], True, column)
            having = np.full(len(column.texts), np.nan)
            texts = column.texts.have_phrase(placed)
            having[texts] = found[texts]
            return having
        case Boolean(must, should, must_not):
            needed = [scores(clause, columns) for clause in must]
            other = [scores(clause, columns) for clause in should]
            total = np.nansum([*needed, *other], axis=0)
            matching = np.isfinite(needed).all(axis=0) if needed else np.isfinite(other).any(axis=0)
            for clause in must_not:
                matching &= np.isnan(scores(clause, columns))
            return np.where(matching, total, np.nan)
        case Boost(positive, negative, negative_boost):
            return scores(positive, columns) - negative_boost * np.nan_to_num(scores(negative, columns), nan=0.0)
        case _:
            assert_never(query)


def _best(groups: Mapping[str, Sequence[Sequence[str]]], every: bool, columns: Mapping[str, TextColumn]) -> Scores:
    best: Scores | None = None
    for name, asked in groups.items():
        found = _words(asked, every, columns[name])
        best = found if best is None else np.fmax(best, found)
    assert best is not None
    return best


def _words(groups: Sequence[Sequence[str]], every: bool, column: TextColumn) -> Scores:
    """Return the score of each text; NaN if the text does not match.

    A text has a group if it has one of the group's words.  It matches if it has a group, or with ``every`` all groups.
    """
    texts, statistics = column.texts, column.statistics
    total, having = np.zeros(len(texts)), np.zeros(len(texts), np.int64)
    relative = texts.lengths / statistics.average if statistics.average else np.ones(len(texts))
    held = K1 * (1 - B + B * relative)
    for group, times in Counter(map(tuple, groups)).items():
        there = np.zeros(len(texts), np.bool_)
        for word in group:
            found = texts.postings(word)
            factor = statistics.weights.get(word, 0.0) * times * (K1 + 1)
            total[found.texts] += factor * found.counts / (found.counts + held[found.texts])
            there[found.texts] = True
        having += there
    wanted = len(set(map(tuple, groups))) if every else 1
    return np.where((having >= wanted) & (having > 0), total, np.nan)
