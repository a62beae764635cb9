"""Meaning of a text query for a table: its columns, and the parts that no text can match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.lance.text_index import TextIndex
from lancewal_reader.search.options import TextSought
from lancewal_reader.search.texts.text_query import (
    Boolean,
    Boost,
    Leaf,
    Match,
    Near,
    Phrase,
    TextQuery,
    columns_of,
    leaves,
    with_columns,
    with_leaves,
)
from lancewal_reader.search.texts.words import Tokenizer


def with_text_columns(rows: RowSchema, indexes: Sequence[TextIndex], sought: TextSought) -> TextSought:
    """Fill in the columns of each part of the query that names none.

    Such a part gets the columns of the search.  Without those, it gets the only column with an index, or else the only
    text column outside the primary key.  Raises ``InvalidInput`` if there are several candidates, or if a column has no
    texts.
    """
    texts = [f.name for f in rows.table if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
    named = sought.text_columns
    if named is None:
        named = tuple(index.column for index in indexes if index.column in texts)
        named = named or tuple(name for name in texts if name not in rows.primary_key)
        if len(named) != 1 and any(_unnamed(leaf) for leaf in leaves(sought.query)):
            raise InvalidInput(f"text_columns must be named: {len(named)} columns of texts may be meant: {list(named)}")
    query = with_leaves(sought.query, lambda leaf: with_columns(leaf, named))
    columns = tuple(sorted({name for leaf in leaves(query) for name in columns_of(leaf)}))
    wrong = [name for name in columns if name not in texts]
    if wrong:
        raise InvalidInput(f"text column {wrong[0]!r} is not a text column; the table has {texts}")
    return replace(sought, query=query, text_columns=columns)


def _unnamed(leaf: Leaf) -> bool:
    return (leaf.column if isinstance(leaf, Phrase) else getattr(leaf, "columns", ())) is None


def with_words(query: TextQuery, tokenizers: Mapping[str, Tokenizer]) -> TextQuery | None:
    """Return the query without the parts that consist of stop words only, because no text can match them.  None if no
    part is left.
    """
    match query:
        case Match(words, _, _, _):
            columns = tuple(name for name in columns_of(query) if tokenizers[name].words(words))
            return replace(query, columns=columns) if columns else None
        case Near():
            return query
        case Phrase(words, _):
            return query if tokenizers[columns_of(query)[0]].words(words) else None
        case Boost(positive, negative, negative_boost):
            kept, lower = with_words(positive, tokenizers), with_words(negative, tokenizers)
            return kept if kept is None or lower is None else Boost(kept, lower, negative_boost)
        case Boolean(must, should, must_not):
            needed, other, without = (
                [with_words(clause, tokenizers) for clause in some] for some in (must, should, must_not)
            )
            if None in needed:
                return None
            left = [tuple(q for q in some if q is not None) for some in (needed, other, without)]
            return Boolean(*left) if left[0] or left[1] else None
