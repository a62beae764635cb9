"""Ask a scalar or full text index one question, and find the errors in its answer.

An answer is right if each of its rows has the value asked for, no row comes twice, and a scan finds as many rows.  Then
the answer has exactly the rows of the scan.  So the scan only counts, for all questions of all indexes together
(``index_check``).

Questions, by kind
 * BTREE, BITMAP, ZONEMAP, BLOOMFILTER: rows with a value, or with none (null).
 * LABEL_LIST: rows whose list has an element.
 * NGRAM: rows that contain a text.  The scan counts the rows that are equal to the text.
 * INVERTED: rows with a word of which the index's own tokenizer makes one token.  The scan counts texts that have the word's
   letters and digits between other characters.  To split all texts into tokens would be slow.  Only texts of the answer, and
   texts that the scan has counted, are split.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.query import MatchQuery

from lancewal_core.rows.column_types import stored_array
from lancewal_core.table.lance.index_build import TOKENIZER, IndexBuild
from lancewal_core.table.protocol import ROW_ADDRESS
from lancewal_reader.forms.sql_literals import literal

ANSWER_ROWS_MAX = 1_000_000
"""Upper bound of the rows of one answer that are checked.  If an answer has more rows, missing rows are not noticed."""
WORD_ROWS_MAX = 2_000
"""Upper bound of the rows that contain a word.  A word in more rows is skipped, since Python splits each row's text
into tokens."""
WORDS_OF_A_TEXT = 2
_RUN = re.compile("[0-9A-Za-z]+")
_BETWEEN = "[^0-9a-z]+"

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class IndexAnswer:
    """Answer of an index to one question."""

    wrong: pa.Table
    """Keys of the rows that do not have the value asked for."""
    twice: pa.Table
    """Keys of the rows that the answer has more than once."""
    counted: int
    """Number of distinct rows of the answer that have what the scan counts for this question (``Questions.count``).  If
    the index misses no row, the scan counts as many."""
    whole: bool = True
    """False if the answer had more rows than are checked."""


class Questions(Protocol):
    """Questions to one index.  ``ask`` answers one question through the index.  ``count`` counts the matching rows of
    all questions in a batch of a scan."""

    def __len__(self) -> int: ...

    def uses_index(self, dataset: Any) -> bool:
        """Return whether Lance answers these questions by this index."""

    def ask(self, dataset: Any, number: int, keys: Sequence[str]) -> IndexAnswer | None:
        """Return the answer to the question ``number``; None if the answer has too many rows.

        ``keys``: columns of the primary key."""

    def count(self, column: pa.Array) -> npt.NDArray[np.int64]:
        """Return for each question the number of rows in the scanned ``column`` that match."""


def column_of(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    """Return a column, or a member of a struct column; the member is null where the struct is null."""
    found = batch.column(path[0])
    for name in path[1:]:
        found = pc.struct_field(found, name)
    return found


@dataclass(slots=True)
class Values:
    """Questions to indexes of the kinds BTREE, BITMAP, ZONEMAP, BLOOMFILTER, LABEL_LIST and NGRAM.

    ``values``: each value once, without null.  ``nulls``: ask for rows with null too, as the last question."""

    build: IndexBuild
    values: pa.Array
    nulls: bool

    def __len__(self) -> int:
        return len(self.values) + self.nulls

    def uses_index(self, dataset: Any) -> bool:
        plan = dataset.scanner(columns=[self.build.path[0]], filter=self._condition(0)).explain_plan()
        return f"]@{self.build.name}(" in plan

    def ask(self, dataset: Any, number: int, keys: Sequence[str]) -> IndexAnswer | None:
        columns = list(dict.fromkeys([*keys, self.build.path[0]]))
        scanner = dataset.scanner(columns=columns, filter=self._condition(number), with_row_address=True)
        return _answer(scanner.to_batches(), keys, self.build.path, *self._tests(number))

    def count(self, column: pa.Array) -> npt.NDArray[np.int64]:
        found = np.zeros(len(self), np.int64)
        if self.nulls:
            found[-1] = column.null_count
        if self.build.kind == "LABEL_LIST":
            rows, elements = pc.list_parent_indices(column), pc.list_flatten(column)
            numbers = _distinct(rows, pc.index_in(elements, self.values), len(self.values))[:, 1]
        else:
            numbers = pc.index_in(column, self.values).drop_null().to_numpy(zero_copy_only=False)
        found[: len(self.values)] += np.bincount(numbers, minlength=len(self.values))
        return found

    def _condition(self, number: int) -> str:
        if number == len(self.values):
            return f"{self.build.sql} is null"
        value = literal(self.values[number])
        if pa.types.is_float32(self.values.type):  # Lance asks the index for an element of exactly its own type
            value = f"CAST({value} AS FLOAT)"
        match self.build.kind:
            case "LABEL_LIST":
                return f"array_has_any({self.build.sql}, [{value}])"
            case "NGRAM":
                return f"contains({self.build.sql}, {value})"
            case _:
                return f"{self.build.sql} = {value}"

    def _tests(self, number: int) -> tuple[Callable[[pa.Array], Mask], Callable[[pa.Array], Mask]]:
        """Return two functions of a column: which rows have the value asked for, and which of them the scan counts."""
        if number == len(self.values):
            return _is_null, _is_null
        value = self.values[number]

        def has(column: pa.Array) -> Mask:
            found = np.zeros(len(column), np.bool_)
            at = np.asarray(pc.list_parent_indices(column))
            found[at[_true(pc.equal(pc.list_flatten(column), value))]] = True
            return found

        def equals(column: pa.Array) -> Mask:
            return _true(pc.equal(column, value))

        def contains(column: pa.Array) -> Mask:
            return _true(pc.match_substring(column, value.as_py()))

        match self.build.kind:
            case "LABEL_LIST":
                return has, has
            case "NGRAM":
                return contains, equals
            case _:
                return equals, equals


@dataclass(slots=True)
class Words:
    """Questions to an index of the kind INVERTED.  ``words``: as they are in a text, before the tokenizer."""

    build: IndexBuild
    words: Sequence[str]
    _tokens: Callable[[str], frozenset[str]] = field(init=False)
    _asked: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._tokens = tokenizer(self.build.parameters)

    def __len__(self) -> int:
        return len(self.words)

    def uses_index(self, dataset: Any) -> bool:
        return True

    def ask(self, dataset: Any, number: int, keys: Sequence[str]) -> IndexAnswer | None:
        word = self.words[number]
        columns = list(dict.fromkeys([*keys, self.build.path[0]]))
        scanner = dataset.scanner(
            columns=[*columns, "_score"],
            full_text_query=MatchQuery(word, ".".join(self.build.path)),
            limit=WORD_ROWS_MAX + 1,
            with_row_address=True,
        )
        found = scanner.to_table()
        if found.num_rows > WORD_ROWS_MAX:
            return None
        self._asked.add(number)
        token = self._token(word)

        def has(column: pa.Array) -> Mask:
            return np.array([token in self._tokens(text or "") for text in column.to_pylist()], np.bool_)

        def stands(column: pa.Array) -> Mask:
            lists = _runs(column)
            found = np.zeros(len(column), np.bool_)
            found[np.asarray(pc.list_parent_indices(lists))[_true(pc.equal(pc.list_flatten(lists), word.lower()))]] = (
                True
            )
            return found & has(column)

        return _answer(found.to_batches(), keys, self.build.path, has, stands)

    def count(self, column: pa.Array) -> npt.NDArray[np.int64]:
        found = np.zeros(len(self), np.int64)
        by_run: dict[str, list[int]] = {}
        for number in self._asked:
            by_run.setdefault(self.words[number].lower(), []).append(number)
        if not by_run:
            return found
        runs = list(by_run)
        lists = _runs(column)
        numbers = pc.index_in(pc.list_flatten(lists), pa.array(runs))
        for row, run in _distinct(pc.list_parent_indices(lists), numbers, len(runs)).tolist():
            tokens = self._tokens(column[row].as_py())
            for number in by_run[runs[run]]:
                found[number] += self._token(self.words[number]) in tokens
        return found

    def _token(self, word: str) -> str:
        (token,) = self._tokens(word)
        return token


def tokenizer(parameters: Mapping[str, Any]) -> Callable[[str], frozenset[str]]:
    """Return a function that splits a text into tokens, with the parameters of the index."""
    given = {name: value for name, value in parameters.items() if name in TOKENIZER}

    @lru_cache(1_000)
    def tokens(text: str) -> frozenset[str]:
        return frozenset(token.text for token in lance.tokenize(text, **given))

    return tokens


def words_of(texts: Iterable[str], parameters: Mapping[str, Any]) -> Sequence[str]:
    """Return up to ``WORDS_OF_A_TEXT`` of the longest words of each text that are one token, each word once."""
    tokens = tokenizer(parameters)
    found: dict[str, None] = {}
    for text in texts:
        runs = sorted(dict.fromkeys(_RUN.findall(text)), key=len, reverse=True)
        taken = [run for run in runs[: 4 * WORDS_OF_A_TEXT] if len(tokens(run)) == 1][:WORDS_OF_A_TEXT]
        found.update(dict.fromkeys(taken))
    return list(found)


def values_of(build: IndexBuild, type_: pa.DataType, values: Iterable[object]) -> Values:
    """Return questions for the distinct values of a column, or of the elements of a list column.

    Values that equality does not find, such as NaN, are left out."""
    plain = list(values)
    if build.kind == "LABEL_LIST":
        type_ = type_.value_type
        plain = [element for value in plain if isinstance(value, list) for element in value if element is not None]
    nulls = build.kind not in ("LABEL_LIST", "NGRAM") and None in plain
    known = [value for value in plain if value is not None and _askable(build.kind, value)]
    return Values(build, stored_array(list(dict.fromkeys(known)), type_), nulls)


def _askable(kind: str, value: object) -> bool:
    if kind == "NGRAM":
        return isinstance(value, str) and re.search("[0-9A-Za-z]{3}", value) is not None
    # NaN equals nothing, and 0.0 equals -0.0 here but not in Lance.
    return not isinstance(value, float) or (value == value and value not in (0.0, float("inf"), float("-inf")))


def _answer(
    batches: Iterable[pa.RecordBatch],
    keys: Sequence[str],
    path: Sequence[str],
    right: Callable[[pa.Array], Mask],
    counts: Callable[[pa.Array], Mask],
) -> IndexAnswer:
    wrong: list[pa.RecordBatch] = []
    twice: list[pa.RecordBatch] = []
    seen: list[npt.NDArray[np.uint64]] = []
    rows = counted = 0
    for batch in batches:
        rows += batch.num_rows
        column = column_of(batch, path)
        addresses = np.asarray(batch.column(ROW_ADDRESS))
        first = np.zeros(len(addresses), np.bool_)
        first[np.unique(addresses, return_index=True)[1]] = True
        for before in seen:
            first &= ~np.isin(addresses, before)
        seen.append(addresses[first])
        matching = right(column)
        counted += int((counts(column) & first).sum())
        named = batch.select(list(keys))
        wrong.append(named.filter(pa.array(~matching & first)))
        twice.append(named.filter(pa.array(~first)))
        if rows > ANSWER_ROWS_MAX:
            break
    empty = wrong[0].schema if wrong else pa.schema([])
    return IndexAnswer(
        pa.Table.from_batches(wrong, empty), pa.Table.from_batches(twice, empty), counted, rows <= ANSWER_ROWS_MAX
    )


def _runs(column: pa.Array) -> pa.Array:
    """Return the runs of letters and digits of each text, in lower case."""
    return pc.split_pattern_regex(pc.utf8_lower(column), pattern=_BETWEEN)


def _distinct(rows: pa.Array, numbers: pa.Array, count: int) -> npt.NDArray[np.int64]:
    """Return the distinct pairs of a row and a number below ``count``; a null number gives none."""
    known = np.asarray(numbers.is_valid())
    at, which = np.asarray(rows)[known].astype(np.int64), np.asarray(numbers.drop_null()).astype(np.int64)
    return np.stack(np.divmod(np.unique(at * max(count, 1) + which), max(count, 1)), axis=1)


def _true(found: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(found, False))


def _is_null(column: pa.Array) -> Mask:
    return np.asarray(column.is_null())
