"""Searches by words against BM25 over a dict by a formula of its own, whatever lies where."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput, SearchUnsupported
from lancewal_core.rows.schema import Op
from lancewal_core.table.lance.pinned import LancePinnedTable
from lancewal_core.table.lance.text_index import DocumentLengths, TextIndex, document_lengths
from lancewal_flusher.garbage.snapshots import drop_snapshot
from lancewal_reader.search import text as text_search
from lancewal_reader.search.texts import indexed_texts, near_words
from lancewal_reader.search.texts.text_query import Boolean, Boost, Match, Phrase, TextQuery
from lancewal_reader.table import Table, open_table, reads_of
from lancewal_tables.snapshots.make import make_snapshot
from tests.support import indexed_tables
from tests.support.flusher_tables import COMBINE, KeyedTable, Operation, Row
from tests.support.indexed_tables import FRAGMENTS, PER_FRAGMENT, AllIndexes, build_indexes

K = 7
WORDS = 40
_PLAIN = indexed_tables.values


def some_words(rng: np.random.Generator) -> str | None:
    """Frequent and rare ones, texts short and long; some have none."""
    count = int(rng.integers(-1, 12))
    drawn = np.minimum(rng.zipf(1.4, max(count, 0)), WORDS)
    return None if count < 0 else " ".join(f"w{word}" for word in drawn)


def values(id: int, age: int) -> Row:
    rng = np.random.default_rng(id * 1_000 + age + 7)
    return {**_PLAIN(id, age), "text": some_words(rng), "title": some_words(rng)}


class Texts(AllIndexes):
    """Full text indexes over two columns, which do not cover the same fragments."""

    def fill(self) -> None:
        for _ in range(FRAGMENTS):
            self.adopt_new(PER_FRAGMENT)
            if self.next_id == PER_FRAGMENT * (FRAGMENTS - 3):
                build_indexes(self.dataset, {"num": "BTREE", "text": "INVERTED"}, {})
                self.dataset.create_scalar_index("title", "INVERTED", with_position=True)
            if self.next_id == PER_FRAGMENT * (FRAGMENTS - 1):
                self.dataset.optimize.optimize_indices(index_names=["text_idx"], num_indices_to_merge=0)


# ``test_index_matrix`` takes every act with both in each run.
pytestmark = pytest.mark.in_turns("made", each=2)


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Texts]:
    monkeypatch.setattr(indexed_tables, "values", values)
    monkeypatch.setattr(text_search, "ASKED_MIN", 1)
    table = Texts.filled(tmp_path, stable_row_ids=request.param)
    yield table
    table.close()


# -- the oracle ---------------------------------------------------------------------------------------------------


@cache
def edits(word: str, other: str) -> int:
    """Letters put in, left out or changed, by the words of the definition."""
    if not word or not other:
        return len(word) + len(other)
    changed = edits(word[1:], other[1:]) + (word[0] != other[0])
    return min(changed, edits(word[1:], other) + 1, edits(word, other[1:]) + 1)


class Documents:
    """Of one column, as a text book has it."""

    def __init__(self, texts: Mapping[int, str | None]) -> None:
        self.words = {id: text.split() for id, text in texts.items() if text}
        self.average = sum(map(len, self.words.values())) / max(len(self.words), 1)
        self._having = Counter(word for words in self.words.values() for word in set(words))

    def near(self, word: str, fuzziness: int | None, prefix: int) -> list[str]:
        """As the documentation of fuzzy queries has it; word by word of all there are."""
        most = (0 if len(word) <= 2 else 1 if len(word) <= 5 else 2) if fuzziness is None else fuzziness
        if not most:
            return [word]
        return [o for o in self._having if edits(word, o) <= most and o.startswith(word[:prefix])]

    def score(self, id: int, word: str) -> float:
        count = self.words.get(id, []).count(word)
        having = self._having[word]
        weight = math.log(1 + (len(self.words) - having + 0.5) / (having + 0.5))
        length = len(self.words.get(id, []))
        return weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / self.average))

    def total(self, id: int, words: Sequence[str]) -> float:
        return sum(self.score(id, word) for word in words)


def score(query: TextQuery, id: int, columns: Mapping[str, Documents]) -> float | None:
    """None where it does not match."""
    if isinstance(query, Match):
        named = (
            ("text",)
            if query.columns is None
            else (query.columns,)
            if isinstance(query.columns, str)
            else query.columns
        )
        totals = []
        for column in named:
            groups = [columns[column].near(word, query.fuzziness, query.prefix_length) for word in query.words.split()]
            have = [any(word in columns[column].words.get(id, []) for word in group) for group in groups]
            if all(have) if query.operator == "and" else any(have):
                totals.append(sum(columns[column].total(id, group) for group in groups))
        return max(totals) * query.boost if totals else None
    if isinstance(query, Phrase):
        documents, wanted = columns[query.column or "text"], query.words.split()
        text = documents.words.get(id, [])
        stands = any(text[at : at + len(wanted)] == wanted for at in range(len(text)))
        return documents.total(id, wanted) if stands else None
    if isinstance(query, Boost):
        high, low = score(query.positive, id, columns), score(query.negative, id, columns)
        return None if high is None else high - query.negative_boost * (low or 0.0)
    assert isinstance(query, Boolean)
    if any(score(clause, id, columns) is not None for clause in query.must_not):
        return None
    needed = [score(clause, id, columns) for clause in query.must]
    other = [found for clause in query.should if (found := score(clause, id, columns)) is not None]
    if None in needed or (not needed and not other):
        return None
    return sum(found for found in needed if found is not None) + sum(other)


def best(table: AllIndexes, query: TextQuery, before: int | None = None) -> dict[int, float]:
    """All matching rows and their scores; with ``before`` those with ``num`` below it."""
    rows = {id: row for (id,), row in table.model.items()}
    columns = {name: Documents({id: row[name] for id, row in rows.items()}) for name in ("text", "title")}
    found = {id: score(query, id, columns) for id in rows}
    right = {id: value for id, value in found.items() if value is not None}
    if before is not None:
        right = {id: v for id, v in right.items() if rows[id]["num"] is not None and rows[id]["num"] < before}
    return dict(sorted(right.items(), key=lambda item: -item[1]))


QUERIES: list[TextQuery] = [
    Match("w1"),
    Match("w2 w17"),
    Match("w3 w3 w9 w40"),
    Match("w2 w4", operator="and"),
    Match("w30", operator="and"),
    Match("w5 w1", ("text", "title")),
    Match("w1 w6", ["title"], "and", 2.5),
    Phrase("w1 w2"),
    Phrase("w1 w1 w2", "title"),
    Boolean(must=[Match("w1"), Match("w3 w4")], should=[Phrase("w1 w1")], must_not=[Match("w2")]),
    Boolean(should=[Match("w7", "title"), Match("w8")], must_not=[Phrase("w1 w2", "title")]),
    Boost(Match("w2 w5"), Match("w1"), 0.8),
    Boolean(should=[Boost(Match("w9"), Match("w1")), Match("w2", boost=0.3)]),
    Match("nowhere"),
    Match("w1", fuzziness=1, prefix_length=2),
    Match("x12 w2", fuzziness=1),
    Match("v3 w22", fuzziness=1, operator="and", boost=2.0),
    Match("w123", ("text", "title"), fuzziness=None),
    Boolean(must=[Match("x3", fuzziness=1)], must_not=[Match("w11", fuzziness=1, prefix_length=2)]),
    Boost(Match("x4", fuzziness=1), Match("w1"), 0.5),
]


def holds(table: Texts, opened: Table, query: TextQuery, before: int | None = None, exact: bool = False) -> pa.Table:
    """As many rows as match, the best first, and by the scores that the formula gives; rows of the same score in any order."""
    right = best(table, query, before)
    filter = None if before is None else f"num < {before}"
    rows = opened.search(text=query, text_columns=["text"], limit=K, columns=["id", "num"], filter=filter, exact=exact)
    found = rows.to_arrow()
    ids, shown = found["id"].to_pylist(), found["_score"].to_pylist()
    assert len(ids) == len(set(ids)) == min(K, len(right)), query
    assert shown == pytest.approx(list(right.values())[:K], rel=1e-5, abs=1e-6), query
    assert shown == pytest.approx([right[id] for id in ids], rel=1e-5, abs=1e-6), query
    assert found["num"].to_pylist() == [table.model[(id,)]["num"] for id in ids]
    assert rows.coverage.approximate is None
    return found


def scatter(table: Texts, flush: bool) -> None:
    """Unmerged upserts, new keys, patches, deletes, and texts that are gone; a word becomes frequent."""
    table.age += 1
    most = max(range(FRAGMENTS), key=lambda fragment: len(table.some(fragment, PER_FRAGMENT)))
    some = table.some(most, 14)
    trend = {**values(some[0], table.age), "text": f"w{20 + table.age % 20} w1"}
    table.generation(
        0,
        [
            *(table.upsert(id) for id in some[:5]),
            *(Operation(Op.UPSERT, (id,), trend) for id in (some[11], some[12], 9_000 + table.age)),
            *(Operation(Op.PATCH, (id,), {"text": values(id, table.age)["text"], "num": 1}) for id in some[5:8]),
            *(Operation(Op.DELETE, (id,)) for id in some[8:11]),
            Operation(Op.PATCH, (some[13],), {"text": None}),
            table.upsert(5_000 + table.age),
        ],
        flush=flush,
    )


def check(table: Texts, opened: Table, queries: Sequence[TextQuery] = QUERIES) -> None:
    for query in queries:
        holds(table, opened, query)
    holds(table, opened, queries[table.age % len(queries)], exact=True)
    holds(table, opened, queries[(table.age * 5) % len(queries)], before=60_000)
    holds(table, opened, Match("w1 w2"), before=2_500)


def test_after_every_act(made: Texts) -> None:
    """By one open table, which keeps what it learned."""
    opened = open_table(made.uri)
    check(made, opened)
    scatter(made, flush=True)
    check(made, opened)
    scatter(made, flush=False)
    check(made, opened)
    made.flush(0)
    acts: list[Callable[[Texts], None]] = [
        Texts.combine, Texts.patch, Texts.delete_some, Texts.compact, Texts.extend, Texts.expire, Texts.adopt,
        lambda t: t.dataset.optimize.optimize_indices(num_indices_to_merge=10), Texts.delete_some,
    ]  # fmt: skip
    for number, act in enumerate(acts):
        made.age += 1
        act(made)
        scatter(made, flush=True)
        check(made, opened, QUERIES[number % 3 :: 3])
    scatter(made, flush=False)
    check(made, opened)
    check(made, open_table(made.uri))


@pytest.mark.parametrize("where", ["entry", "flushed generation", "fragment without index"])
def test_the_best_row_is_only_there(made: Texts, where: str) -> None:
    for id in (3, 7_000):
        row = {**values(id, 1), "text": "seldom w1 seldom", "title": "seldom seen"}
        made.generation(0, [Operation(Op.UPSERT, (id,), row)], flush=where != "entry")
        if where == "entry":
            made.flush(0) if id == 3 else None
    if where == "fragment without index":
        made.round()
    opened = open_table(made.uri)
    queries: list[TextQuery] = [
        Match("seldom w2"), Match("seldom w1", operator="and"), Phrase("seldom seen", "title"),
        Boolean(must=[Match("seldom")], should=[Match("w1")]), Boost(Match("seldom"), Match("w1")),
        Match("seldom", ("text", "title")), Match("seldim", fuzziness=1),
        Match("zeldim", ("text", "title"), fuzziness=None),
    ]  # fmt: skip
    for query in queries:
        assert sorted(holds(made, opened, query)["id"].to_pylist()[:2]) == [3, 7_000]
    found = opened.search(text="seldom", text_columns=["text"])
    assert (found.coverage.fresh_rows, found.coverage.masked_rows) == ((0, 0) if "index" in where else (2, 1))


def test_every_best_merged_row_is_superseded(made: Texts) -> None:
    """None of them is found, and as many as are asked for are; the word's weight is that of now."""
    opened = open_table(made.uri)
    queries: list[TextQuery] = [Match("w2"), Phrase("w1 w1", "title"), Match("x2", "title", fuzziness=1)]
    for query in queries:
        best_before = list(best(made, query))[: 3 * K]
        row = {**values(1, 1), "text": "w30 w31", "title": "w33"}
        made.generation(0, [Operation(Op.UPSERT, (id,), row) for id in best_before])
        assert not set(holds(made, opened, query)["id"].to_pylist()) & set(best_before)


def limits_asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each question to an index, from now on."""
    asked: list[int] = []

    def counted(pinned: Any, query: Any, columns: Any, limit: int, filter: Any, hidden: Any) -> pa.Table:
        asked.append(limit)
        return indexed_texts.ask(pinned, query, columns, limit, filter, hidden)

    monkeypatch.setattr(text_search, "ask", counted)
    return asked


def test_an_index_is_asked_again_while_rows_that_it_did_not_show_may_be_better(
    made: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Lance's statistics the rare word is worth so much that rows with it come first: unmerged ones make it the most
    frequent, so that by those of all rows they come last."""
    rare = {"text": "rare", "title": None}
    made.generation(0, [Operation(Op.UPSERT, (id,), {**values(id, 1), **rare}) for id in made.some(0, 2 * K)])
    made.round()
    made.dataset.optimize.optimize_indices(num_indices_to_merge=0)
    rows = [Operation(Op.UPSERT, (20_000 + i,), {**values(i, 1), "text": "rare x1 x2 x3"}) for i in range(400)]
    made.generation(0, rows, flush=False)
    asked = limits_asked(monkeypatch)
    found = holds(made, open_table(made.uri), Match("rare w9"))
    assert not set(found["id"].to_pylist()) & {id for (id,), row in made.model.items() if row["text"] == "rare"}
    assert len(asked) > 1


@pytest.mark.parametrize("words", ["usual", "usual seldom", "usual w1"])
def test_of_many_rows_with_the_same_score_an_index_shows_no_more_than_are_wanted(
    made: Texts, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """Also where a word besides has become rarer, of which all rows are shown, or one that is in most rows."""
    usual = [Operation(Op.UPSERT, (20_000 + i,), {**values(i, 1), "text": "usual"}) for i in range(400)]
    seldom = [Operation(Op.UPSERT, (30_000 + i,), {**values(i, 1), "text": "usual seldom"}) for i in range(2)]
    made.generation(0, [*usual, *seldom])
    made.round()
    made.dataset.optimize.optimize_indices(num_indices_to_merge=0)
    made.generation(0, [Operation(Op.DELETE, (30_001,)), *usual[:3]], flush=False)
    monkeypatch.setattr(text_search, "MANY", 4 * K)
    asked = limits_asked(monkeypatch)
    holds(made, open_table(made.uri), Match(words))
    assert max(asked) <= 8 * K


def test_an_index_whose_scores_are_not_as_its_statistics_say_is_asked_for_all(
    made: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_texts.IndexedTexts, "best", lambda *_: indexed_texts.WordScore(1e6, 1e6))
    asked = limits_asked(monkeypatch)
    holds(made, open_table(made.uri), Match("w1 w2"))
    assert asked[-1] == made.dataset.count_rows()


@pytest.mark.parametrize("unknown", ["texts of words", "form of the words"])
def test_where_an_index_cannot_be_asked_for_near_words_texts_are_read(
    made: Texts, monkeypatch: pytest.MonkeyPatch, unknown: str
) -> None:
    def no_words(*_: object) -> None:
        raise ValueError("another form")

    scatter(made, flush=False)
    opened = open_table(made.uri)
    query = Match("x12 w2", "text", fuzziness=1)
    assert opened.search(text=query).coverage.indexed_rows
    if unknown == "texts of words":
        monkeypatch.setattr(text_search, "piece_of", lambda *_: None)
    else:
        monkeypatch.setattr(indexed_texts, "word_automata", no_words)
    holds(made, open_table(made.uri), query)
    assert not open_table(made.uri).search(text=query).coverage.indexed_rows


def test_lengths_of_an_index_are_read_once_and_whose_documents_live_of_each_version(
    made: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(pinned: LancePinnedTable, index: TextIndex) -> DocumentLengths:
        read.append(index.name)
        return document_lengths(pinned, index)

    monkeypatch.setattr(text_search, "document_lengths", counted)
    opened = open_table(made.uri)
    for fragment in range(3):
        holds(made, opened, Match("w1 w2"))
        made.generation(0, [Operation(Op.DELETE, (id,)) for id in made.some(fragment, 9)])
        holds(made, opened, Match("w1 w2"))
        made.round()
    assert read == ["text_idx"]


def test_words_near_to_too_many_are_refused(made: Texts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_words, "NEAR_MAX", 5)
    opened = open_table(made.uri)
    with pytest.raises(SearchUnsupported, match=r"\d+ words are near to 'w1', more than 5: .* prefix_length"):
        opened.search(text=Match("w1", "text", fuzziness=1))


def test_words_are_those_of_the_index(tmp_path: Path) -> None:
    """Stems, stop words, accents and case as Lance has them; without an index its defaults."""
    for indexed in (False, True):
        folder = tmp_path / str(indexed)
        folder.mkdir()
        made = AllIndexes(folder, stable_row_ids=False)
        texts = ["The quick foxes were running", "A CAFÉ of foxes", "running water", "the of a", ""]
        for id, text in enumerate(texts[:3]):
            made.generation(0, [Operation(Op.UPSERT, (id,), {"text": text})])
        made.round()
        if indexed:
            build_indexes(made.dataset, {"text": "INVERTED"}, {})
        for id, text in enumerate(texts[3:], 3):
            made.generation(0, [Operation(Op.UPSERT, (id,), {"text": text})], flush=False)
        opened = open_table(made.uri)

        def found(text: str | TextQuery, opened: Table = opened) -> list[int]:
            return sorted(opened.search(text=text, text_columns=["text"]).to_arrow()["id"].to_pylist())

        assert (found("fox"), found("run"), found("cafe"), found("the"), found("")) == ([0, 1], [0, 2], [1], [], [])
        assert found(Phrase("quick fox runs")) == []
        assert found(Phrase("foxes were run")) == [0]  # the gap of a stop word counts
        assert found(Boolean(must=[Match("foxes")], must_not=[Match("the")])) == [0, 1]
        assert found(Boolean(must=[Match("foxes"), Match("the")])) == []
        assert found(Match("foyes", fuzziness=1)) == [0, 1]
        assert found(Match("wader caffe", fuzziness=None)) == [1, 2]
        assert found(Match("wader quick", fuzziness=1, operator="and")) == []
        made.close()


TRAINED: dict[str, dict[str, Any]] = {
    "stop words of one's own": {"custom_stop_words": ["library", "quick"], "stem": False},
    "stop words of one's own, stems": {"custom_stop_words": ["librari", "quick"]},
    "no stop words of one's own": {"custom_stop_words": []},
    "stop words not removed": {"custom_stop_words": ["library"], "remove_stop_words": False, "stem": False},
    "all words": {"remove_stop_words": False},
    "whitespace": {"base_tokenizer": "whitespace", "stem": False},
    "raw": {"base_tokenizer": "raw", "stem": False},
    "icu": {"base_tokenizer": "icu"},
    "parts": {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 4, "stem": False},
    "beginnings": {"base_tokenizer": "ngram", "prefix_only": True, "stem": False},
    "another language": {"language": "German"},
    "short words": {"max_token_length": 6},
    "long words": {"max_token_length": None},
    "case": {"lower_case": False, "stem": False},
    "no stems": {"stem": False},
    "accents": {"ascii_folding": False},
    "code": {"analyzer": "code"},
    "code in one": {"base_tokenizer": "code", "split_identifiers": False},
    "code and numbers": {"base_tokenizer": "code", "split_identifiers": True, "split_on_numerics": True},
    "code, also whole": {"base_tokenizer": "code", "split_identifiers": True, "preserve_original": True},
    "code, operators": {"base_tokenizer": "code", "index_operators": True},
    "positions": {"with_position": True, "block_size": 256},
}
"""Each parameter of Lance's full text index, as other than its default."""
SENTENCES = [
    "the library of Running dogs", "library", "the quick", "der schnelle Hund und die Häuser", "CAFÉ Straße ünïcode",
    "x" * 50 + " short", "parseHttpRequest2xx = foo_bar(a==b)", "12abc34 don't stop", "",
]  # fmt: skip
ASKED = [
    "library", "the", "quick", "running", "Running", "run", "dogs", "der", "und", "haus", "Hund", "cafe", "café", "CAFÉ",
    "strasse", "x" * 50, "short", "parse", "http", "parseHttpRequest2xx", "2", "foo_bar", "foo", "==", "12abc34", "abc",
    "don't", "li", "libr", "quick library",
]  # fmt: skip


@pytest.mark.in_turns("trained", each=2)
@pytest.mark.parametrize("trained", TRAINED)
def test_words_are_those_that_the_index_was_trained_with(tmp_path: Path, trained: str) -> None:
    """Merged rows, and unmerged ones: as plain Lance finds the same texts by the same index."""
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
    made = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",))
    plain = lance.write_dataset(pa.table({"id": range(len(SENTENCES)), "text": SENTENCES}), tmp_path / "plain")
    plain.create_scalar_index("text", "INVERTED", **TRAINED[trained])
    made.generation(0, [Operation(Op.UPSERT, (id,), {"text": text}) for id, text in enumerate(SENTENCES)])
    made.round()
    made.dataset.create_scalar_index("text", "INVERTED", **TRAINED[trained])
    made.generation(
        0, [Operation(Op.UPSERT, (id,), {"text": text}) for id, text in enumerate(SENTENCES, 100)], flush=False
    )
    opened = open_table(made.uri)
    for words in ASKED:
        expected = plain.scanner(columns=["id"], full_text_query=words).to_table()["id"].to_pylist()
        found = opened.search(text=words, limit=100).to_arrow()["id"].to_pylist()
        assert sorted(found) == sorted([*expected, *(100 + id for id in expected)]), words
    made.close()


def test_words_of_an_index_none_of_whose_rows_is_left(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
    made = KeyedTable(tmp_path, 1, columns=columns, primary_key=("id",))
    made.generation(0, [Operation(Op.UPSERT, (1,), {"text": "the library"})])
    made.round()
    made.dataset.create_scalar_index("text", "INVERTED", custom_stop_words=["library"], stem=False)
    made.generation(0, [Operation(Op.UPSERT, (1,), {"text": "the library too"})])
    made.round()
    opened = open_table(made.uri)
    found = {word: opened.search(text=word).to_arrow()["id"].to_pylist() for word in ("the", "library")}
    assert found == {"the": [1], "library": []}
    made.close()


def test_what_must_not_be_there_leaves_out_no_more_where_words_stand_at_one_place(tmp_path: Path) -> None:
    """As all parts of a text do to the index by parts of three letters: to it any of them is a phrase, and all words."""
    made = AllIndexes(tmp_path, stable_row_ids=False)
    texts = ["hello world", "hell of a world", "yellow world", "world"]
    for id, text in enumerate(texts):
        made.generation(0, [Operation(Op.UPSERT, (id,), {"text": text})])
    made.round()
    made.dataset.create_scalar_index("text", "INVERTED", with_position=True, base_tokenizer="ngram", stem=False)
    for id, text in enumerate(texts, 10):
        made.generation(0, [Operation(Op.UPSERT, (id,), {"text": text})], flush=False)
    opened = open_table(made.uri)
    unwanted: list[TextQuery] = [Phrase("hello"), Match("hello", operator="and"), Boolean(must=[Phrase("hello")])]
    for clause in unwanted:
        found = opened.search(text=Boolean(must=[Match("world")], must_not=[clause]), text_columns=["text"])
        assert sorted(found.to_arrow()["id"].to_pylist()) == [1, 2, 3, 11, 12, 13], clause
        assert found.coverage.indexed_rows == 4
    found = opened.search(text=Boolean(must=[Match("world")], must_not=[Match("hel")]), text_columns=["text"])
    assert sorted(found.to_arrow()["id"].to_pylist()) == [2, 3, 12, 13]
    made.close()


def test_a_search_at_a_receipt_is_the_same_search(made: Texts) -> None:
    scatter(made, flush=True)
    opened = open_table(made.uri)
    found = opened.search(text="w1 w2", text_columns=["text"], limit=K)
    scatter(made, flush=False)
    again = opened.search(text="w1 w2", text_columns=["text"], limit=K, at=str(found.receipt))
    assert again.to_arrow().equals(found.to_arrow())
    merged_alone = opened.search(text="w1 w2", text_columns=["text"], consistency="eventual")
    assert (merged_alone.coverage.fresh_rows, merged_alone.coverage.masked_rows) == (0, 0)


def named_snapshot(table: AllIndexes, name: str) -> None:
    context = table.context()
    make_snapshot(context, reads_of(context, table.uri), name)


def test_snapshots_and_the_table_are_told_apart_by_a_table_that_stays_open(tmp_path: Path) -> None:
    """Two snapshots of one version, and the table's next version, have the same number and the same fragments by number."""
    table = AllIndexes(tmp_path, stable_row_ids=False)
    table.adopt_new(20)
    opened = open_table(table.uri)
    found: dict[str | None, dict[int, str]] = {}
    asked: dict[str, Any] = {"text": "seldom", "text_columns": ["text"], "columns": ["id", "text"]}
    for name, id, text in (("one", 3, "seldom"), ("two", 900, "seldom and more")):
        table.generation(0, [Operation(Op.UPSERT, (id,), {"text": text})])
        named_snapshot(table, name)
    table.generation(0, [Operation(Op.UPSERT, (3,), {"text": "frequent"})])
    table.round(COMBINE)
    for point in ("snapshot:one", "snapshot:two", None, "snapshot:one"):
        rows = opened.search(**asked, at=point).to_arrow()
        anew = open_table(table.uri).search(**asked, at=point).to_arrow()
        assert rows.equals(anew), point
        found[point] = dict(zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True))
    assert found == {
        "snapshot:one": {3: "seldom"}, "snapshot:two": {3: "seldom", 900: "seldom and more"}, None: {900: "seldom and more"},
    }  # fmt: skip
    drop_snapshot(table.context().table, "one")
    named_snapshot(table, "one")
    assert opened.search(**asked, at="snapshot:one").to_arrow()["id"].to_pylist() == [900]
    table.close()


def test_words_at_a_snapshot_are_those_of_the_index(tmp_path: Path) -> None:
    """Also which column is meant."""
    table = AllIndexes(tmp_path, stable_row_ids=False)
    table.adopt_new(20)
    table.dataset.create_scalar_index("text", "INVERTED", stem=False, remove_stop_words=False)
    table.generation(0, [Operation(Op.UPSERT, (3,), {"text": "the foxes"})])
    opened = open_table(table.uri)
    named_snapshot(table, "one")
    for words, ids in (("the", [3]), ("fox", []), ("foxes", [3])):
        for point in (None, "snapshot:one"):
            assert opened.search(text=words, at=point).to_arrow()["id"].to_pylist() == ids, (words, point)
    table.close()


def test_what_is_wrong_is_said(made: Texts) -> None:
    opened = open_table(made.uri)
    wrong: list[tuple[dict[str, object], str]] = [
        ({}, "expected a vector, a text, or both"),
        ({"text": "w1"}, "text_columns must be named: 2 columns"),
        ({"text": "w1", "text_columns": ["num"]}, "'num' is not a text column"),
        ({"text": "w1", "text_columns": "text"}, "must be a list of names"),
        ({"text": 3}, "text: expected words"),
        ({"text": Match("w1", "text", "near")}, "operator 'near'"),  # type: ignore[arg-type]
        ({"text": Match("w1", "text", boost=0)}, "boost 0"),
        ({"text": Match("w1", "text", boost=1e300)}, "boost 1e.300: expected a number from 0 to"),
        ({"text": Match("w1", "text", fuzziness=3)}, "fuzziness 3: expected 0, 1, 2, or None"),
        ({"text": Match("w1", "text", fuzziness=1, prefix_length=-1)}, "prefix_length -1"),
        ({"text": Match(3, "text")}, "words: expected a text"),  # type: ignore[arg-type] # what a user gives
        ({"text": Boolean(must_not=[Match("w1")])}, "give a clause in must or should"),
        ({"text": Boolean(must=["w1"])}, "expected other queries"),  # type: ignore[list-item]
        ({"text": Boolean(must=Match("w1"))}, "must must be a list of queries"),  # type: ignore[arg-type]
        ({"text": Boolean(should=(Match(w) for w in ("w1", "w2")))}, "should must be a list"),  # type: ignore[arg-type]
        ({"text": Match("w1", 3)}, "columns must be a name or a list of names, not 3"),  # type: ignore[arg-type]
        ({"text": Phrase("w1", ["text"])}, "column must be a name"),  # type: ignore[arg-type]
        ({"text": reduce(lambda inner, _: Boolean([inner]), range(5_000), Match("w1"))}, "at most 50 clauses inside"),  # type: ignore[arg-type, return-value]
        ({"text": "w1", "text_columns": 3}, "must be a list of names"),
        ({"text": "w1", "exact": "no"}, "exact 'no': expected True or False"),
        ({"text": Phrase("w1"), "text_columns": ["text", "title"]}, "searched in one column"),
        ({"text": "w1", "text_columns": ["text"], "limit": 0}, "limit 0"),
    ]
    for arguments, told in wrong:
        with pytest.raises(InvalidInput, match=told):
            opened.search(**arguments)  # type: ignore[arg-type]
    fuzzy = lance.query.MatchQuery("w1", "text", fuzziness=1)
    with pytest.raises(SearchUnsupported, match=r"Use lancewal\.Match"):
        opened.search(text=fuzzy)  # type: ignore[arg-type]
