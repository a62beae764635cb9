"""Arguments of a search besides the options of every read, and their checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.errors import InvalidInput, SearchUnsupported
from lancewal_reader.forms.given_numbers import whole_of
from lancewal_reader.point.read_options import Read
from lancewal_reader.search.texts.text_query import TextQuery, are_names, is_factor, is_list, text_query

FloatMetric = Literal["l2", "cosine", "dot"]
Metric = Literal["l2", "cosine", "dot", "hamming"]
"""``hamming`` applies to binary vectors, and is their only metric.  The others apply to floats."""
Vectors = npt.NDArray[np.float64]


Rerank: TypeAlias = Callable[[pa.Table], Iterable[float]]
"""Function that is given the rows found, best first, and returns a number for each; higher is better."""


@dataclass(frozen=True, slots=True)
class RRF:
    """Reciprocal rank fusion: a row's score is the sum of weight / (k + rank) over the rankings by vector and by text."""

    k: float = 60
    weights: tuple[float, float] = (1.0, 1.0)
    """Weights of the ranking by vector, and of that by text."""


class Search(Read, total=False):
    """Arguments of a search; all may be left out."""

    vector_column: str | None
    text_columns: Sequence[str] | None
    exact: bool
    metric: Metric | None
    nprobes: int | None
    refine_factor: int | None
    fusion: RRF
    rerank: Rerank | None


ASKED = frozenset(Search.__annotations__) - frozenset(Read.__annotations__)
"""Names of the options of a search that other reads do not have."""


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """Checked search by vectors.  Each row of ``vectors`` is a query.  For binary vectors, its numbers are byte values."""

    vectors: Vectors
    many: bool
    """Whether the caller gave a list of vectors.  The result then has a column with the number of the query."""
    column: str
    limit: int
    exact: bool = False
    metric: Metric | None = None
    nprobes: int | None = None
    refine_factor: int | None = None


@dataclass(frozen=True, slots=True)
class TextSought:
    """Search by text, checked except for its columns."""

    query: TextQuery
    text_columns: tuple[str, ...] | None
    limit: int
    exact: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns to search.  They must be filled in before (``with_text_columns``)."""
        assert self.text_columns is not None
        return self.text_columns


@dataclass(frozen=True, slots=True)
class Sought:
    """A search by vector, by text, or by both."""

    vector: VectorQuery | None
    text: TextSought | None
    limit: int
    fusion: RRF
    rerank: Rerank | None


def sought_of(schema: pa.Schema, vector: Any, text: object, limit: int, options: dict[str, Any]) -> Sought:
    """Check a user's search against ``schema``, and return it.  ``options`` are the options listed in ``ASKED``."""
    if vector is None and text is None:
        raise InvalidInput("search: expected a vector, a text, or both")
    limit = _from_one("limit", limit)
    by_vector = None if vector is None else vector_query(schema, vector, limit, options)
    by_text = None if text is None else text_sought(text, limit, options)
    fusion, rerank = options.get("fusion", RRF()), options.get("rerank")
    if by_vector is not None and by_vector.many and (by_text is not None or rerank is not None):
        raise InvalidInput(
            "search: many vectors cannot be combined with a text or rerank; search for one after the other"
        )
    if "fusion" in options and (by_vector is None or by_text is None):
        raise InvalidInput("fusion combines two rankings: give a vector and a text")
    _check_fusion(fusion)
    if rerank is not None and not callable(rerank):
        raise InvalidInput(f"rerank: expected a function of the rows found, not {type(rerank).__name__}")
    return Sought(by_vector, by_text, limit, fusion, rerank)


def _check_fusion(fusion: object) -> None:
    if not isinstance(fusion, RRF):
        raise InvalidInput(f"fusion: expected a lancewal.RRF, not {type(fusion).__name__}")
    weights: object = fusion.weights
    numbers = [fusion.k, *weights] if is_list(weights) else []
    if len(numbers) != 3 or not all(map(is_factor, numbers)) or not any(numbers[1:]):
        raise InvalidInput(f"fusion {fusion}: expected k and two weights from 0 on, not both 0")


def text_sought(text: object, limit: int, options: dict[str, Any]) -> TextSought:
    """Return the search by text.  ``limit`` must be checked already.  ``options`` are the options of ``Search``."""
    columns = options.get("text_columns")
    if columns is not None and not are_names(columns):
        raise InvalidInput(f"text_columns must be a list of names, not {columns!r}")
    return TextSought(text_query(text), None if columns is None else tuple(columns), limit, _exact(options))


def _exact(options: dict[str, Any]) -> bool:
    exact = options.get("exact", False)
    if not isinstance(exact, bool):
        raise InvalidInput(f"exact {exact!r}: expected True or False")
    return exact


def _from_one(name: str, given: object) -> int:
    number = whole_of(given, 1)
    if number is None:
        raise InvalidInput(f"{name} {given!r}: expected an integer from 1 on")
    return number


def vector_query(schema: pa.Schema, vector: Any, limit: int, options: dict[str, Any]) -> VectorQuery:
    """Check a search by vectors against the table's columns.  ``limit`` must be checked already.  ``options`` are the
    options of ``Search``.
    """
    column = _column(schema, options.get("vector_column"))
    type_ = schema.field(column).type
    metric = _metric(options.get("metric"), column, type_)
    nprobes, refine_factor = (
        None if options.get(name) is None else _from_one(name, options[name]) for name in ("nprobes", "refine_factor")
    )
    vectors = _vectors(vector, column, type_)
    return VectorQuery(
        np.atleast_2d(vectors), vectors.ndim == 2, column, limit, _exact(options), metric,
        nprobes, refine_factor,
    )  # fmt: skip


def has_bits(type_: pa.FixedSizeListType) -> bool:
    """Whether vectors of this type are binary (hold bits)."""
    return bool(pa.types.is_uint8(type_.value_type))


def _metric(asked: Any, column: str, type_: pa.FixedSizeListType) -> Metric | None:
    if asked is not None and not (isinstance(asked, str) and asked in get_args(Metric)):
        raise InvalidInput(f"metric {asked!r} is unknown: use 'l2', 'cosine', 'dot' or 'hamming'")
    if not has_bits(type_):
        if asked == "hamming":
            raise SearchUnsupported(
                f"metric 'hamming' counts differing bits, and column {column!r} has floats: use 'l2', 'cosine' or 'dot'"
            )
        return cast("Metric | None", asked)
    if asked not in (None, "hamming"):
        raise SearchUnsupported(
            f"metric {asked!r} compares floats, and column {column!r} has binary vectors: use 'hamming', which counts "
            "the bits that differ"
        )
    return "hamming"


def _column(schema: pa.Schema, name: str | None) -> str:
    found: list[str] = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
    if not found:
        raise InvalidInput(
            f"the table has no column of vectors, fixed_size_list of floats or uint8: it has {schema.names}"
        )
    if name is None:
        if len(found) != 1:
            raise InvalidInput(f"vector_column must be named: the table has {len(found)} columns of vectors: {found}")
        return found[0]
    if name not in found:
        raise InvalidInput(f"vector_column {name!r} is not a vector column; the table has {found}")
    return name


def _vectors(vector: Any, column: str, type_: pa.FixedSizeListType) -> Vectors:
    size, bits = type_.list_size, has_bits(type_)
    found = _numbers(vector, size, bits)
    if found.ndim not in (1, 2) or found.shape[-1] != size or not len(found):
        of = f"{8 * size} bits, {size} bytes: numpy.packbits makes them" if bits else f"{size} numbers"
        raise InvalidInput(f"vector has shape {found.shape}; column {column!r} has vectors of {of}")
    if not np.isfinite(found).all():
        raise InvalidInput("vector has a number that is NaN or infinite: expected finite numbers")
    if bits and not ((found >= 0) & (found <= 255) & (found % 1 == 0)).all():
        raise InvalidInput(f"vector: expected integers from 0 to 255: column {column!r} has eight bits in each")
    return found


_NUMBERS = "buifO"
"""Kinds of NumPy arrays that are accepted.  Objects are checked when they are converted to floats."""


def _numbers(vector: Any, size: int, bits: bool) -> Vectors:
    """Return numbers of any shape.  numpy itself would read numbers out of texts and times, and drop the imaginary part
    of others."""
    expected = f"vector: expected {size} numbers, or a list of such vectors"
    try:
        given = np.asarray(vector)
        kind = given.dtype.kind
        if kind in _NUMBERS and not (bits and kind == "b"):
            return given.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{expected}: {error}") from error
    match kind:
        case "b":
            raise InvalidInput(
                f"vector: expected {size} bytes of eight bits each, not single bits: numpy.packbits makes them"
            )
        case "U":
            raise InvalidInput(f"{expected}, not a text: give words as text=")
        case "S":
            raise InvalidInput(f"{expected}, not bytes: numpy.frombuffer(..., numpy.uint8) has their numbers")
    raise InvalidInput(f"{expected}, not {given.dtype}")
