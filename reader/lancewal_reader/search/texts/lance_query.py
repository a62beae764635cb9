"""A query in the form that Lance takes, for a full text index."""

from __future__ import annotations

from lance.query import (
    BooleanQuery,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)

from lancewal_reader.search.texts.text_query import Boolean, Boost, Match, Near, Phrase, TextQuery, columns_of, leaves


def shown_by_index(query: TextQuery, positions: bool) -> TextQuery:
    """Return the query to send to an index.  It finds all rows that ``query`` finds, with scores that are at least as
    high.

    Without ``positions`` a phrase becomes a search for all its words.  Parts that lower a score are left out.

    An exclusion is kept only if it excludes texts with any of some words.  The tokenizer may put several words at one
    position, such as the parts of a compound word.  Lance then accepts any one of them as the phrase or as all words,
    so the index would exclude too many rows.
    """
    match query:
        case Near():
            return query.plain()
        case Phrase(words, column) if not positions:
            return Match(words, column, "and")
        case Boost(positive, _, _):
            return shown_by_index(positive, positions)
        case Boolean(must, should, must_not):
            needed, other = (tuple(shown_by_index(q, positions) for q in some) for some in (must, should))
            return Boolean(needed, other, tuple(q for q in must_not if _of_any_word(q)))
    return query


def _of_any_word(query: TextQuery) -> bool:
    return all(not isinstance(leaf, Phrase) and leaf.operator == "or" for leaf in leaves(query))


def lance_query(query: TextQuery) -> FullTextQuery:
    """Return the query for pylance; ``query`` has no ``Boost``."""
    match query:
        case Near():
            return lance_query(query.plain())
        case Match(words, _, operator, boost):
            names, how = list(columns_of(query)), FullTextOperator(operator.upper())
            if len(names) > 1:
                return MultiMatchQuery(words, names, boosts=[boost] * len(names), operator=how)
            return MatchQuery(words, names[0], boost=boost, operator=how)
        case Phrase(words, column):
            assert column is not None
            return PhraseQuery(words, column)
        case Boolean(must, should, must_not):
            parts = ((Occur.MUST, must), (Occur.SHOULD, should), (Occur.MUST_NOT, must_not))
            return BooleanQuery([(occur, lance_query(inner)) for occur, some in parts for inner in some])
        case Boost(positive, _, _):
            return lance_query(positive)
