"""Queries of texts: words, phrases, and combinations of both.

Scores add up as Lance's do.  ``Match`` has the sum of its words, in the best of its columns if it has several.
``Phrase`` has the sum of its words, in texts that have the phrase.  ``Boolean`` has the sum of its clauses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeGuard

from lancewal_core.errors import InvalidInput, SearchUnsupported
from lancewal_core.store.json_object import is_whole

Operator = Literal["or", "and"]
FUZZINESS_MAX = 2
FACTOR_MAX = 1e30
"""Largest factor of a score: far above what anyone needs, far below what a float32 holds."""
DEPTH_MAX = 50
"""Largest number of levels of clauses inside each other."""


@dataclass(frozen=True, slots=True)
class Match:
    """Find texts with any of these words (``or``), or with all of them (``and``), the best first."""

    words: str
    columns: str | Sequence[str] | None = None
    """One column or several; None: the columns of the search.  A text's score is that of its best column."""
    operator: Operator = "or"
    boost: float = 1.0
    """Factor by which the score is multiplied."""
    fuzziness: int | None = 0
    """Letters that may be inserted, left out or changed in a word that matches, up to 2.  None: no letter in words of up
    to 2 letters, one in words of up to 5, two in longer ones."""
    prefix_length: int = 0
    """Letters at the beginning of a word that must be the same."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Find texts that contain these words one after the other."""

    words: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Boolean:
    """Find texts that match all of ``must`` and none of ``must_not``.  Without ``must``, texts must match at least one
    of ``should``.
    """

    must: Sequence[TextQuery] = ()
    should: Sequence[TextQuery] = ()
    must_not: Sequence[TextQuery] = ()


@dataclass(frozen=True, slots=True)
class Boost:
    """Find the rows of ``positive``.  If ``negative`` finds a row too, its score there times ``negative_boost`` is
    subtracted.
    """

    positive: TextQuery
    negative: TextQuery
    negative_boost: float = 0.5


@dataclass(frozen=True, slots=True)
class Near:
    """Expanded fuzzy ``Match``: for each of its words a group of similar words, by column."""

    groups: Mapping[str, tuple[tuple[str, ...], ...]]
    pieces: Mapping[str, Mapping[str, str]]
    """By column and word: a text that is this word and no other."""
    operator: Operator
    boost: float

    def plain(self) -> TextQuery:
        """Return a query without ``Near`` that finds the same rows, with scores that are at least as high.  Its scores
        of several columns add up, while ``Near`` uses only the best column.
        """
        of_columns: list[TextQuery] = []
        for name, groups in self.groups.items():
            texts = [" ".join(self.pieces[name][word] for word in group) for group in groups]
            if self.operator == "or":
                of_columns.append(Match(" ".join(texts), (name,), "or", self.boost))
            else:
                of_columns.append(Boolean(must=tuple(Match(text, (name,), "or", self.boost) for text in texts)))
        return of_columns[0] if len(of_columns) == 1 else Boolean(should=tuple(of_columns))


TextQuery: TypeAlias = Match | Phrase | Boolean | Boost | Near
Leaf: TypeAlias = Match | Phrase | Near


def text_query(text: object) -> TextQuery:
    """Check a user's query by text, except for its columns, and return it."""
    query = Match(text) if isinstance(text, str) else text
    if not isinstance(query, Match | Phrase | Boolean | Boost):
        if type(query).__module__.startswith("lance"):
            raise SearchUnsupported(
                f"text: a {type(query).__name__} of pylance does not show what it asks for, so unmerged rows could not be "
                "searched. Use lancewal.Match, Phrase, Boolean or Boost"
            )
        raise InvalidInput(
            f"text: expected words, or a lancewal.Match, Phrase, Boolean or Boost, not {type(text).__name__}"
        )
    _check(query, 0)
    return query


def _check(query: TextQuery, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InvalidInput(f"text: expected at most {DEPTH_MAX} clauses inside each other")
    match query:
        case Match(words, columns, operator, boost, fuzziness, prefix_length):
            _check_words(words)
            if not (columns is None or isinstance(columns, str) or are_names(columns)):
                raise InvalidInput(f"columns must be a name or a list of names, not {columns!r}")
            if fuzziness is not None and not (is_whole(fuzziness) and fuzziness <= FUZZINESS_MAX):
                raise InvalidInput(
                    f"fuzziness {fuzziness!r}: expected 0, 1, 2, or None (chosen by the length of each word)"
                )
            if not is_whole(prefix_length):
                raise InvalidInput(f"prefix_length {prefix_length!r}: expected a number of letters from 0 on")
            if operator not in ("or", "and"):
                raise InvalidInput(f"operator {operator!r} is unknown: use 'or' or 'and'")
            _check_factor("boost", boost)
            if not boost:
                raise InvalidInput("boost 0: expected a number above 0")
        case Phrase(words, column):
            _check_words(words)
            if not (column is None or isinstance(column, str)):
                raise InvalidInput(f"column must be a name, not {column!r}")
        case Boost(_, _, negative_boost):
            _check_factor("negative_boost", negative_boost)
        case Boolean(must, should, must_not):
            for name, some in (("must", must), ("should", should), ("must_not", must_not)):
                if not is_list(some):  # what can be gone through once alone would be at its end here
                    raise InvalidInput(f"Boolean: {name} must be a list of queries, not {some!r}")
            if not must and not should:
                raise InvalidInput(
                    "Boolean: give a clause in must or should; must_not only takes rows away from what these find"
                )
    for clause in clauses(query):
        if isinstance(clause, Near) or not isinstance(clause, TextQuery):
            raise InvalidInput(f"{type(query).__name__}: expected other queries, not {clause!r}")
        _check(clause, depth + 1)


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def are_names(value: object) -> bool:
    return is_list(value) and all(isinstance(name, str) for name in value)


def _check_words(words: object) -> None:
    if not isinstance(words, str):
        raise InvalidInput(f"words: expected a text, not {type(words).__name__}")


def _check_factor(name: str, value: object) -> None:
    if not is_factor(value):
        raise InvalidInput(f"{name} {value!r}: expected a number from 0 to {FACTOR_MAX:g}")


def is_factor(value: object) -> bool:
    """Whether the value is a valid factor for scores: a number from 0 to ``FACTOR_MAX``."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= FACTOR_MAX


def clauses(query: TextQuery) -> Iterator[TextQuery]:
    """Yield the queries that a query combines."""
    match query:
        case Boolean(must, should, must_not):
            yield from (*must, *should, *must_not)
        case Boost(positive, negative, _):
            yield from (positive, negative)


def leaves(query: TextQuery) -> Iterator[Leaf]:
    """Yield the leaves of a query: the queries for words and phrases inside it, or the query itself."""
    if isinstance(query, Leaf):
        yield query
    for clause in clauses(query):
        yield from leaves(clause)


def with_leaves(query: TextQuery, change: Callable[[Leaf], Leaf]) -> TextQuery:
    """Return the query with each leaf replaced by the result of ``change``."""
    match query:
        case Boolean(must, should, must_not):
            return Boolean(*(tuple(with_leaves(q, change) for q in some) for some in (must, should, must_not)))
        case Boost(positive, negative, negative_boost):
            return Boost(with_leaves(positive, change), with_leaves(negative, change), negative_boost)
        case _:
            return change(query)


def with_columns(leaf: Leaf, columns: tuple[str, ...]) -> Leaf:
    """Return the leaf with ``columns`` filled in if it names none.  Raises ``InvalidInput`` if a phrase would get
    several columns.
    """
    match leaf:
        case Near():
            return leaf
        case Match():
            return replace(leaf, columns=columns if leaf.columns is None else _names(leaf.columns))
        case Phrase():
            named = columns if leaf.column is None else (leaf.column,)
            if len(named) != 1:
                raise InvalidInput(
                    f"Phrase: a phrase is searched in one column. Name it by column=..., one of {list(named)}"
                )
            return replace(leaf, column=named[0])


def columns_of(leaf: Leaf) -> tuple[str, ...]:
    """Return the columns that a leaf names.  The leaf must name some."""
    if isinstance(leaf, Near):
        return tuple(leaf.groups)
    named = leaf.columns if isinstance(leaf, Match) else leaf.column
    assert named is not None
    return _names(named)


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not names or len(set(names)) != len(names):
        raise InvalidInput(f"text columns {list(names)}: name each once")
    return names
