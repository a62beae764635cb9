"""The best rows by words.

Guarantees
 1. The rows are those of the state that the plan says, and no others, as in ``vectors``.  Rows that unmerged records
    replace or delete are hidden before anything is ranked, and a filter comes before ranking, by Lance's SQL on both
    sides.
 2. The ranking is BM25 by the statistics of all rows of the state, as if merged and unmerged ones were in one index
    that was built this moment.  Neither rows deleted since an index was built nor the filter count in it.  The ranking
    is the same whatever is merged, flushed or indexed, and with ``exact``.
 3. The ranking is complete: ``limit`` rows if so many match, and no row that is not shown has a higher score.  Scores
    count as equal if their relative difference is at most ``_SAME``.  Once the index was asked for ``MANY`` rows, it
    may be ``_NEARLY``.
 4. Nothing is written.

Steps
 1. Rows that no index covers, and unmerged ones, are read, and scored one by one.  With ``exact`` all rows are.
 2. The statistics are those of these rows and of the index's live documents that are not hidden.
 3. The index is asked for its best rows, whose texts are scored like the others.  By Lance's statistics, a row that
    the index does not return scores at most as high as the last returned row.  ``bounds`` computes the highest score
    that such a row can have by the statistics of the state.  While that could be among the best, the index is asked
    for more rows.  If the index's scores do not follow from its statistics, it is asked for all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.text_index import TextIndex, Trained, document_lengths, text_indexes
from lancewal_core.table.protocol import ROW_ADDRESS
from lancewal_reader.plan.kept import Kept
from lancewal_reader.search.found import SearchCoverage, SearchRows
from lancewal_reader.search.options import TextSought
from lancewal_reader.search.ranked import Ranked, ranked_of
from lancewal_reader.search.sides import SearchSides, SearchState
from lancewal_reader.search.text_columns import with_words
from lancewal_reader.search.texts.bm25 import Statistics, TextColumn, scores, weight
from lancewal_reader.search.texts.bounds import BoundPart, max_growth, most_beyond, words_summed
from lancewal_reader.search.texts.indexed_texts import (
    SCORE,
    IndexedTexts,
    RowIds,
    ask,
    flat_rows,
    mask_of,
    row_ids,
)
from lancewal_reader.search.texts.lance_query import lance_query, shown_by_index
from lancewal_reader.search.texts.near_words import are_those, check_few, distance_of, near_among, piece_of
from lancewal_reader.search.texts.text_query import (
    Leaf,
    Match,
    Near,
    TextQuery,
    columns_of,
    leaves,
    with_leaves,
)
from lancewal_reader.search.texts.words import Texts, Tokenizer, single_words

ASKED_MIN = 20
KEPT_ROWS_MAX = 100_000
"""Merged rows without index are kept for the next search if there are at most this many."""
_CLOSE = 1e-4
"""Largest relative difference between a score that Lance shows and the same score computed from its statistics.  In
fact such scores differ by 1e-6.
"""
_SAME = 1e-5
"""Largest relative difference at which scores count as equal.  A sum in float32 is no more precise."""
MANY, _NEARLY = 1_000, 1e-3
"""Once an index is asked for ``MANY`` rows, scores count as equal up to the relative difference ``_NEARLY``.  All
rows of a table may have the same words equally often.  All of them would be read to find that none is better by a
trifle.
"""
_NONE = np.zeros(0, np.uint64)


class TextCache:
    """Cache of tokenized texts for the searches of an open table.  Threads may share it."""

    def __init__(self) -> None:
        self._tokenizers: dict[str, Tokenizer] = {}
        self.indexed = Kept(8)
        self.lengths = Kept()
        """Cache of the lengths of documents, by the segments of an index, which never change."""
        self.flat = Kept(2)
        self.others = Kept(2)
        self._indexes = Kept(2)
        self.trained: Trained = {}
        self._texts: dict[tuple[Tokenizer, str, bool], tuple[pa.ChunkedArray, Texts]] = {}

    def texts(self, tokenizer: Tokenizer, rows: pa.Table, name: str, *, fresh: bool) -> Texts:
        """Return the texts of a column.  The rows are unmerged rows, or merged rows without an index.  Most texts are
        reused from the previous state.
        """
        found = tokenizer.texts_again(rows[name], self._texts.get((tokenizer, name, fresh)))
        self._texts[tokenizer, name, fresh] = rows[name], found
        return found

    def indexes(self, pinned: LancePinnedTable) -> Sequence[TextIndex]:
        return self._indexes.get(pinned.version, lambda: text_indexes(pinned, self.trained))

    def tokenizer(self, parameters: Mapping[str, Any]) -> Tokenizer:
        return self._tokenizers.setdefault(repr(sorted(parameters.items())), Tokenizer(parameters))


@dataclass(frozen=True, slots=True)
class _Others:
    """Rows that are scored one by one."""

    flat: pa.Table
    """Merged rows that no index covers, without hidden ones, with their addresses."""
    flat_texts: Mapping[str, Texts]
    fresh_texts: Mapping[str, Texts]
    aside: RowIds
    """Rows that an index of some column has, but must not find: hidden ones, and those of ``flat``."""
    mask: bytes | None
    """``aside`` as Lance takes it."""
    documents: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By column: the number of documents in the column's index, without ``aside``, and the number of their words.
    Both are computed once.
    """
    having: dict[tuple[str, str], int] = field(default_factory=dict)
    """By column and word: the number of documents in the column's index, without ``aside``, that have the word."""
    words: dict[str, frozenset[str]] = field(default_factory=dict)
    """By column: the words of ``flat_texts`` and ``fresh_texts``; computed once."""

    def words_of(self, name: str) -> frozenset[str]:
        if name not in self.words:
            texts = (self.flat_texts[name], self.fresh_texts[name])
            self.words[name] = frozenset[str]().union(*(some.distinct() for some in texts))
        return self.words[name]


def text_rows(
    sides: SearchSides, cache: TextCache, state: SearchState, sought: TextSought, columns: tuple[str, ...]
) -> SearchRows:
    """Return the best rows by text, with ``columns``.  ``sides`` must have these columns and those that ``sought``
    names.
    """
    pinned = state.pinned
    # Versions of a branch have the numbers of the table's, and branches come and go: what is kept goes by numbers.
    kept = cache if state.plan.branch is None else TextCache()
    searched = TextSearch(pinned, sides, kept, sought, columns)
    ranked, coverage = searched.found()
    return SearchRows(ranked.rows(searched.shown(ranked), sides, state.schema, columns), coverage)


class TextSearch:
    """One search by text in one state."""

    def __init__(
        self, pinned: LancePinnedTable, sides: SearchSides, cache: TextCache, sought: TextSought, given: tuple[str, ...]
    ) -> None:
        self._given = given
        """Columns of the rows found that are returned."""
        self._shown: pa.Table | None = None
        """Rows of the index's first answer, with the columns ``_given``; None: no index was asked yet."""
        self._pinned = pinned
        self._sides = sides
        self._cache = cache
        self._sought = sought
        self._columns = sought.columns
        known = {index.column: index for index in cache.indexes(pinned)}
        self._tokenizers = {
            name: cache.tokenizer(known[name].tokenizer if name in known else {}) for name in self._columns
        }
        here = {name for name, index in known.items() if index.here}
        usable = not sought.exact and here.issuperset(self._columns)
        self._indexed = {name: self._indexed_of(known[name]) for name in self._columns} if usable else {}
        query = with_words(sought.query, self._tokenizers)
        self._query = query if query is None else with_leaves(query, self._with_near)
        self._pieces = {name: self._pieces_of(name) for name in self._columns}
        if not self._pieces_known():
            self._indexed = {}
        self._positions = all(indexed.index.positions for indexed in self._indexed.values())

    def found(self) -> tuple[Ranked, SearchCoverage]:
        sides = self._sides
        live = sum(f.live_rows for f in self._pinned.fragments())
        covered = self._covered
        by_index = sum(f.live_rows for f in self._pinned.fragments() if f.fragment_id in covered)
        coverage = SearchCoverage(by_index, live - by_index, len(sides.passing), len(sides.hidden), None)
        if self._query is None:
            return ranked_of(np.zeros(0), True, _NONE), coverage
        # Step 1
        others = self._others_kept()
        # Step 2
        statistics = self._statistics(others)
        ranked = self._score_others(self._query, others, statistics).best(self._sought.limit)
        # Step 3
        if by_index:
            ranked = ranked.with_rows(self._ask(self._query, statistics, others, ranked))
        return ranked.best(self._sought.limit), coverage

    def shown(self, ranked: Ranked) -> pa.Table:
        """Return the merged rows of ``ranked`` with their addresses.  The table may have additional rows."""
        addresses, known = ranked.places[ranked.merged], self._shown
        if known is not None and np.isin(addresses, known[ROW_ADDRESS].to_numpy()).all():
            return known
        wanted = pa.array(addresses)
        return self._pinned.take(wanted, list(self._given)).append_column(ROW_ADDRESS, wanted)

    @property
    def _covered(self) -> frozenset[int]:
        """Fragments that the indexes of all columns cover."""
        first, *more = [indexed.index.covered for indexed in self._indexed.values()] or [frozenset[int]()]
        return first.intersection(*more)

    def _with_near(self, leaf: Leaf) -> Leaf:
        """Return ``Near`` in place of a fuzzy ``Match``."""
        if not isinstance(leaf, Match) or leaf.fuzziness == 0:
            return leaf
        groups = {name: self._near_words(leaf, name) for name in columns_of(leaf)}
        pieces = {name: self._pieces_of_words(name, some) for name, some in groups.items()}
        return Near(groups, pieces, leaf.operator, leaf.boost)

    def _near_words(self, query: Match, name: str) -> tuple[tuple[str, ...], ...]:
        """Return, for each word that is asked for, the word itself and the words of all texts that are near to it."""
        groups = []
        for word in self._tokenizers[name].words(query.words):
            how = (word, distance_of(word, query.fuzziness), query.prefix_length)
            near = {word, *self._near_in_indexes(name, *how)}
            near |= near_among(self._others_kept().words_of(name), *how)
            check_few(query, word, near)
            groups.append(tuple(sorted(near)))
        return tuple(groups)

    def _near_in_indexes(self, name: str, word: str, distance: int, prefix: int) -> frozenset[str]:
        try:
            return self._indexed[name].near(word, distance, prefix) if self._indexed else frozenset()
        except ValueError:  # an unknown format of words: no index is asked then
            self._indexed = {}
            return frozenset()

    def _pieces_of_words(self, name: str, groups: Sequence[Sequence[str]]) -> Mapping[str, str]:
        tokenizer = self._tokenizers[name]
        found = {word: piece_of(tokenizer, word) for word in sorted({word for group in groups for word in group})}
        pieces = {word: piece for word, piece in found.items() if piece is not None}
        return pieces if are_those(tokenizer, pieces) else {}

    def _pieces_of(self, name: str) -> Mapping[str, str]:
        some = [] if self._query is None else [leaf for leaf in leaves(self._query) if name in columns_of(leaf)]
        found = dict(single_words(self._tokenizers[name], [leaf.words for leaf in some if not isinstance(leaf, Near)]))
        for leaf in some:
            found |= leaf.pieces[name] if isinstance(leaf, Near) else {}
        return found

    def _words_of(self, name: str) -> set[str]:
        some = [] if self._query is None else [leaf for leaf in leaves(self._query) if name in columns_of(leaf)]
        return {word for leaf in some for word in self._words_in(leaf, name)}

    def _words_in(self, leaf: Leaf, name: str) -> Iterable[str]:
        if isinstance(leaf, Near):
            return chain.from_iterable(leaf.groups[name])
        return self._tokenizers[name].words(leaf.words)

    def _pieces_known(self) -> bool:
        """Whether an index can be asked for each word by itself.  It cannot if the tokenizer turns each text for a
        word into other words.
        """
        return all(self._words_of(name) <= self._pieces[name].keys() for name in self._columns)

    def _indexed_of(self, index: TextIndex) -> IndexedTexts:
        key = (self._pinned.version, index)
        lengths = partial(self._cache.lengths.get, index.segments, lambda: document_lengths(self._pinned, index))
        return self._cache.indexed.get(
            key, lambda: IndexedTexts(self._pinned, index, self._tokenizers[index.column], lengths)
        )

    def _others_kept(self) -> _Others:
        made_of = (self._pinned.version, self._sides, self._columns, self._covered)
        return self._cache.others.get(made_of, self._others)

    def _others(self) -> _Others:
        covered, sides = self._covered, self._sides
        flat_ids = [f.fragment_id for f in self._pinned.fragments() if f.fragment_id not in covered]
        flat = self._flat(flat_ids)
        flat = flat.filter(pa.array(~np.isin(flat[ROW_ADDRESS].to_numpy(), sides.hidden)))
        some = frozenset[int]().union(*(indexed.index.covered for indexed in self._indexed.values())) - covered
        addresses = flat[ROW_ADDRESS].to_numpy()
        twice = addresses[np.isin(addresses >> np.uint64(32), np.array(sorted(some), np.uint64))]
        aside = row_ids(self._pinned, np.concatenate([sides.hidden, twice])) if self._indexed else _NONE
        texts = [
            {name: self._cache.texts(self._tokenizers[name], rows, name, fresh=fresh) for name in self._columns}
            for fresh, rows in ((False, flat), (True, sides.fresh))
        ]
        return _Others(flat.select([ROW_ADDRESS]), texts[0], texts[1], aside, mask_of(aside))

    def _flat(self, fragment_ids: Sequence[int]) -> pa.Table:
        if not fragment_ids:
            empty = pa.schema([self._pinned.schema.field(name) for name in self._columns])
            return empty.append(pa.field(ROW_ADDRESS, pa.uint64())).empty_table()
        rows = sum(f.live_rows for f in self._pinned.fragments() if f.fragment_id in set(fragment_ids))
        if rows > KEPT_ROWS_MAX:
            return flat_rows(self._pinned, fragment_ids, self._columns)
        return self._cache.flat.get(
            (self._pinned.version, tuple(fragment_ids), self._columns),
            lambda: flat_rows(self._pinned, fragment_ids, self._columns),
        )

    def _statistics(self, others: _Others) -> Mapping[str, Statistics]:
        found = {}
        for name in self._columns:
            some = (others.flat_texts[name], others.fresh_texts[name])
            documents = sum(int((texts.lengths > 0).sum()) for texts in some)
            words = sum(int(texts.lengths.sum()) for texts in some)
            having = {word: sum(len(texts.postings(word)) for texts in some) for word in self._words_of(name)}
            indexed = self._indexed.get(name)
            if indexed is not None:
                if name not in others.documents:
                    others.documents[name] = indexed.documents(others.aside)
                more = others.documents[name]
                documents, words = documents + more[0], words + more[1]
                for word in having:
                    if (name, word) not in others.having:
                        piece = self._pieces[name][word]
                        others.having[name, word] = indexed.having(word, piece, others.mask)
                    having[word] += others.having[name, word]
            found[name] = Statistics(
                words / max(documents, 1), {word: weight(documents, count) for word, count in having.items()}
            )
        return found

    def _score_others(self, query: TextQuery, others: _Others, statistics: Mapping[str, Statistics]) -> Ranked:
        flat = scores(query, self._scored(others.flat_texts, statistics))
        addresses = others.flat[ROW_ADDRESS].to_numpy()
        if self._sides.filter is not None and len(addresses):
            fragments = np.unique(addresses >> np.uint64(32)).tolist()
            passing = flat_rows(self._pinned, fragments, (), self._sides.filter)[ROW_ADDRESS].to_numpy()
            flat[~np.isin(addresses, passing)] = np.nan
        fresh = scores(query, self._scored(others.fresh_texts, statistics))
        places = self._sides.passing
        return ranked_of(flat, True, addresses).with_rows(ranked_of(fresh[places], False, places.astype(np.uint64)))

    def _scored(self, texts: Mapping[str, Texts], statistics: Mapping[str, Statistics]) -> Mapping[str, TextColumn]:
        return {name: TextColumn(texts[name], statistics[name], self._tokenizers[name]) for name in self._columns}

    def _ask(self, query: TextQuery, statistics: Mapping[str, Statistics], others: _Others, ranked: Ranked) -> Ranked:
        """Return the best rows of the indexes, as far as they can be among the best rows of all."""
        candidates = shown_by_index(query, self._positions)
        lances = {name: self._lances(name, indexed) for name, indexed in self._indexed.items()}
        limit, everything = self._sought.limit, sum(f.live_rows for f in self._pinned.fragments())
        asked = min(max(2 * limit, ASKED_MIN), everything)
        while True:
            # Of the first rows, which mostly are enough, all that is wanted is read at once.
            columns = tuple(dict.fromkeys((*self._columns, *(self._given if self._shown is None else ()))))
            found = ask(self._pinned, lance_query(candidates), columns, asked, self._sides.filter, others.mask)
            self._shown = found if self._shown is None else self._shown
            texts = {name: self._tokenizers[name].texts(found[name]) for name in self._columns}
            mine = scores(query, self._scored(texts, statistics))
            best = ranked_of(mine, True, found[ROW_ADDRESS].to_numpy())
            if found.num_rows < asked or asked >= everything:
                return best
            shown = found[SCORE].to_numpy().astype(np.float64)
            as_told = np.allclose(scores(candidates, self._scored(texts, lances)), shown, rtol=_CLOSE)
            top = ranked.with_rows(best).best(limit).scores
            if as_told and len(top) == limit:
                parts = self._parts_not_shown(candidates, texts, statistics, others)
                if most_beyond(parts, shown[-1]) <= top[-1] * (1 + (_SAME if asked < MANY else _NEARLY)):
                    return best
            asked = min(asked * 4, everything) if as_told else everything

    def _parts_not_shown(
        self,
        candidates: TextQuery,
        shown: Mapping[str, Texts],
        statistics: Mapping[str, Statistics],
        others: _Others,
    ) -> Iterator[BoundPart]:
        """Yield the parts that the score of a row outside ``shown`` can have, one for each column and word."""
        for (name, word), times in words_summed(candidates, self._tokenizers).items():
            indexed, ours = self._indexed[name], statistics[name]
            told = indexed.best(word, self._pieces[name][word])
            if told is None or len(shown[name].postings(word)) >= others.having[name, word]:
                continue
            longer = max_growth(indexed.longest, indexed.average, ours.average)
            yield BoundPart(told.most * times, ours.weights[word] / told.weight * longer)

    def _lances(self, name: str, indexed: IndexedTexts) -> Statistics:
        found = {word: indexed.best(word, self._pieces[name][word]) for word in self._words_of(name)}
        return Statistics(indexed.average, {word: told.weight for word, told in found.items() if told is not None})
