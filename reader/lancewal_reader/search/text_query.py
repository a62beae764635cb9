"""What is sought in texts: words, phrases, and both put together.

Scores add up as Lance's do: ``Match`` is the sum of its words (the best of its columns where it has several), ``Phrase`` that
of its words where the phrase stands, ``Boolean`` that of its clauses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from lancewal_core.errors import InvalidInput, SearchUnsupported

Operator = Literal["or", "and"]


@dataclass(frozen=True, slots=True)
class Match:
    """Texts with any of these words (``or``), or with all of them (``and``), the best first."""

    words: str
    columns: str | Sequence[str] | None = None
    """One or several; default: as the search says.  Of several the best one counts."""
    operator: Operator = "or"
    boost: float = 1.0
    """The score is multiplied by it."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Texts in which these words stand one behind the other."""

    words: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Boolean:
    """Texts that all of ``must`` find, or one of ``should`` where there is no ``must``, and none of ``must_not``."""

    must: Sequence[TextQuery] = ()
    should: Sequence[TextQuery] = ()
    must_not: Sequence[TextQuery] = ()


@dataclass(frozen=True, slots=True)
class Boost:
    """What ``positive`` finds; what ``negative`` finds too ranks lower: by its score times ``negative_boost``."""

    positive: TextQuery
    negative: TextQuery
    negative_boost: float = 0.5


TextQuery: TypeAlias = Match | Phrase | Boolean | Boost


def text_query(text: object) -> TextQuery:
    """What a user gave, checked but for columns."""
    query = Match(text) if isinstance(text, str) else text
    if not isinstance(query, TextQuery):
        if type(query).__module__.startswith("lance"):
            raise SearchUnsupported(
                f"text: of a {type(query).__name__} of pylance nobody can tell what it asks for, so that unmerged rows could "
                "not be asked too: use lancewal.Match, Phrase, Boolean or Boost"
            )
        raise InvalidInput(
            f"text: expected words, or a lancewal.Match, Phrase, Boolean or Boost, not {type(text).__name__}"
        )
    _check(query)
    return query


def _check(query: TextQuery) -> None:
    match query:
        case Match(words, _, operator, boost):
            _check_words(words)
            if operator not in ("or", "and"):
                raise InvalidInput(f"operator {operator!r} is unknown: use 'or' or 'and'")
            _check_factor("boost", boost)
            if not boost:
                raise InvalidInput("boost 0: expected a number above 0")
        case Phrase(words, _):
            _check_words(words)
        case Boost(_, _, negative_boost):
            _check_factor("negative_boost", negative_boost)
        case Boolean(must, should, _):
            if not must and not should:
                raise InvalidInput("Boolean: needs a clause in must or should, to find what must_not leaves out of")
    for clause in clauses(query):
        if not isinstance(clause, TextQuery):
            raise InvalidInput(f"{type(query).__name__}: expected other queries, not {clause!r}")
        _check(clause)


def _check_words(words: object) -> None:
    if not isinstance(words, str):
        raise InvalidInput(f"words: expected a text, not {type(words).__name__}")


def _check_factor(name: str, value: object) -> None:
    if not is_factor(value):
        raise InvalidInput(f"{name} {value!r}: expected a number from 0 on")


def is_factor(value: object) -> bool:
    """Whether a score may be multiplied by it."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def clauses(query: TextQuery) -> Iterator[TextQuery]:
    """Queries that it is made of."""
    match query:
        case Boolean(must, should, must_not):
            yield from (*must, *should, *must_not)
        case Boost(positive, negative, _):
            yield from (positive, negative)


def leaves(query: TextQuery) -> Iterator[Match | Phrase]:
    """The words and phrases."""
    if isinstance(query, Match | Phrase):
        yield query
    for clause in clauses(query):
        yield from leaves(clause)


def with_columns(query: TextQuery, columns: tuple[str, ...]) -> TextQuery:
    """Every leaf names its columns, as a tuple; a phrase its one."""
    match query:
        case Match():
            return replace(query, columns=columns if query.columns is None else _names(query.columns))
        case Phrase():
            named = columns if query.column is None else (query.column,)
            if len(named) != 1:
                raise InvalidInput(f"Phrase: a phrase stands in one column; name it: column=..., one of {list(named)}")
            return replace(query, column=named[0])
        case Boolean(must, should, must_not):
            inner = [tuple(with_columns(q, columns) for q in some) for some in (must, should, must_not)]
            return Boolean(*inner)
        case Boost(positive, negative, negative_boost):
            return Boost(with_columns(positive, columns), with_columns(negative, columns), negative_boost)


def columns_of(leaf: Match | Phrase) -> tuple[str, ...]:
    """Of one with columns."""
    named = leaf.columns if isinstance(leaf, Match) else leaf.column
    assert named is not None
    return _names(named)


def _names(columns: str | Sequence[str]) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not names or len(set(names)) != len(names):
        raise InvalidInput(f"text columns {list(names)}: name each once")
    return names
