"""The full text index of one column of one version: its documents, and the rows that it shows.

Rows are hidden before anything is ranked.  The index is asked only for rows of fragments that it covers
(``fast_search``).  The caller compares all other rows one by one, under the same statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.query import (
    FullTextQuery,
    MatchQuery,
)

from lancewal_core.table.lance.errors import reading
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.row_mask import row_list
from lancewal_core.table.lance.text_index import DocumentLengths, TextIndex, word_automata
from lancewal_core.table.lance.word_automaton import WordAutomaton
from lancewal_core.table.protocol import ROW_ADDRESS
from lancewal_reader.search.texts.bm25 import Statistics, TextColumn, scores
from lancewal_reader.search.texts.text_query import Match
from lancewal_reader.search.texts.words import Tokenizer

SCORE = "_score"
ROW_ID = "_rowid"
RowIds = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class WordScore:
    weight: float
    """Weight by which Lance scores the word."""
    most: float
    """Score of the row with the highest score for the word."""


class IndexedTexts:
    """Statistics of indexed texts, computed once.  Threads may share it."""

    def __init__(
        self, pinned: LancePinnedTable, index: TextIndex, tokenizer: Tokenizer, lengths: Callable[[], DocumentLengths]
    ) -> None:
        """``lengths`` returns the lengths of all documents of the index.  Versions with this index share them."""
        self.index = index
        self._lengths = lengths
        self._pinned = pinned
        self._tokenizer = tokenizer
        self._having: dict[str, int] = {}
        self._best: dict[str, WordScore | None] = {}
        self._near: dict[tuple[str, int, int], frozenset[str]] = {}

    @cached_property
    def _all(self) -> DocumentLengths:
        return self._lengths()

    @cached_property
    def _live(self) -> npt.NDArray[np.bool_]:
        """Mask of the index's documents: True if the pinned version still has the document's row.

        Rows that unmerged records replace are True too.
        """
        with reading(f"reading row ids of version {self._pinned.version}"):
            found = self._pinned.dataset.scanner(
                columns=[], with_row_id=True, fragments=fragments_of(self._pinned, sorted(self.index.covered))
            ).to_table()
        return np.isin(self._all.row_ids, found[ROW_ID].to_numpy())

    @cached_property
    def _live_words(self) -> int:
        return int(self._all.words[self._live].sum())

    @cached_property
    def _automata(self) -> Sequence[WordAutomaton]:
        return word_automata(self._pinned, self.index)

    def near(self, word: str, distance: int, prefix: int) -> frozenset[str]:
        """Return the words within edit distance ``distance`` of ``word``, in all indexed documents, deleted ones
        included.  Raises ``ValueError`` if Lance stores words in an unknown format.
        """
        asked = (word, distance, prefix)
        if asked not in self._near:
            parts = [automaton.near(*asked) for automaton in self._automata]
            self._near[asked] = frozenset(found for part in parts for found in part)
        return self._near[asked]

    @cached_property
    def average(self) -> float:
        """Mean number of words per document, as Lance uses it to score: deleted rows are included."""
        return float(self._all.words.sum()) / max(len(self._all.words), 1)

    @cached_property
    def longest(self) -> int:
        """Number of words of the longest document."""
        return int(self._all.words.max(initial=0))

    def documents(self, without: RowIds) -> tuple[int, int]:
        """Return the number of live documents outside ``without``, and the number of their words."""
        rows = self._all.row_ids
        first, end = (np.searchsorted(rows, np.unique(without), side) for side in ("left", "right"))
        counts = end - first  # mostly 1
        places = np.arange(counts.sum()) + np.repeat(first - (np.cumsum(counts) - counts), counts)
        left_out = places[self._live[places]]
        words = self._live_words - int(self._all.words[left_out].sum())
        return int(self._live.sum()) - len(left_out), words

    def having(self, word: str, piece: str, without: bytes | None) -> int:
        """Return the number of live documents outside ``without`` that have the word.  ``piece`` is a text that
        consists of this word.
        """
        if word not in self._having:
            self._having[word] = self._count(piece, {})
        if not self._having[word] or without is None:
            return self._having[word]
        return self._having[word] - self._count(piece, {"row_addr_allowlist": without})

    def _count(self, piece: str, more: dict[str, Any]) -> int:
        query = MatchQuery(piece, self.index.column)
        with reading(f"searching version {self._pinned.version}"):
            scanner = self._pinned.dataset.scanner(full_text_query=query, fast_search=True, **more)
            return cast("int", scanner.count_rows())

    def best(self, word: str, piece: str) -> WordScore | None:
        """Return how Lance scores the word, derived from the score of its best row; None if no live row has the word."""
        if word not in self._best:
            with reading(f"searching version {self._pinned.version}"):
                found = self._pinned.dataset.scanner(
                    columns=[self.index.column, SCORE],
                    full_text_query=MatchQuery(piece, self.index.column),
                    fast_search=True,
                    limit=1,
                ).to_table()
            self._best[word] = self._score_of(word, piece, found) if found.num_rows else None
        return self._best[word]

    def _score_of(self, word: str, piece: str, best: pa.Table) -> WordScore:
        name, most = self.index.column, float(best[SCORE][0].as_py())
        by_one = TextColumn(self._tokenizer.texts(best[name]), Statistics(self.average, {word: 1.0}), self._tokenizer)
        return WordScore(float(most / scores(Match(piece, name), {name: by_one})[0]), most)


def mask_of(rows: RowIds) -> bytes | None:
    """Return these rows as a mask for Lance; None if there are none."""
    return row_list(rows) if len(rows) else None


def ask(
    pinned: LancePinnedTable,
    query: FullTextQuery,
    columns: Sequence[str],
    limit: int,
    filter: str | None,
    hidden: bytes | None,
) -> pa.Table:
    """Return the best rows that the indexes find, best first, with their addresses."""
    mask = {} if hidden is None else {"row_addr_blocklist": hidden}
    with reading(f"searching version {pinned.version}"):
        return pinned.dataset.scanner(
            columns=[*columns, SCORE],
            full_text_query=query,
            filter=filter,
            prefilter=True,
            limit=limit,
            fast_search=True,
            with_row_address=True,
            **mask,
        ).to_table()


def flat_rows(
    pinned: LancePinnedTable, fragment_ids: Sequence[int], columns: Sequence[str], filter: str | None = None
) -> pa.Table:
    """Return the rows of some fragments that pass the filter, with their addresses."""
    with reading(f"scanning version {pinned.version}"):
        return pinned.dataset.scanner(
            columns=list(columns),
            fragments=fragments_of(pinned, fragment_ids),
            filter=filter,
            with_row_address=True,
        ).to_table()


def fragments_of(pinned: LancePinnedTable, fragment_ids: Sequence[int]) -> list[Any]:
    return [pinned.dataset.get_fragment(i) for i in fragment_ids]


def row_ids(pinned: LancePinnedTable, addresses: RowIds) -> RowIds:
    """Return the row ids of the rows at these addresses.  Without stable row ids, the ids are the addresses."""
    if not pinned.stable_row_ids or not len(addresses):
        return addresses
    fragments = np.unique(addresses >> np.uint64(32)).tolist()
    with reading("reading row ids"):
        known = pinned.dataset.scanner(
            columns=[], with_row_id=True, with_row_address=True, fragments=fragments_of(pinned, fragments)
        ).to_table()
    wanted = np.isin(known[ROW_ADDRESS].to_numpy(), addresses)
    return np.asarray(known[ROW_ID].to_numpy()[wanted], np.uint64)
