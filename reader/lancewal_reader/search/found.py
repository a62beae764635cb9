"""The result of a search: rows by their distance or score, the receipt of what was read, and how rows were searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lancewal_reader.forms.pandas_frames import Dtypes
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.reading.rows import to_pandas, to_polars

if TYPE_CHECKING:
    import pandas
    import polars


@dataclass(frozen=True, slots=True)
class SearchCoverage:
    """Number of rows that a search examined, by method.  Merged rows that the filter leaves out are included.  In a
    search by vector and text, a row counts as indexed only if neither search compared it one by one.
    """

    indexed_rows: int
    """Rows of the merged table that an index answered for."""
    flat_rows: int
    """Rows of the merged table whose distances or scores were computed one by one."""
    fresh_rows: int
    """Unmerged rows that pass the filter.  Each was compared exactly."""
    masked_rows: int
    """Rows of the merged table that newer, unmerged records replace or delete: hidden before anything was ranked."""
    approximate: str | None
    """The part of the result that is approximate, and by which limits; None if the result is exact."""


class SearchRows:
    """The rows found, best first, in memory.  They have ``_distance`` after a search by vector, and ``_score`` after
    one by text.  Fusion and reranking add ``_relevance_score``, and several queries add ``query_index``.
    """

    def __init__(self, rows: pa.Table, coverage: SearchCoverage) -> None:
        self._rows = rows
        self._coverage = coverage

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows, with the receipt in its metadata."""
        return self._rows.schema

    @property
    def receipt(self) -> Receipt:
        """Receipt of the state that was searched."""
        return receipt_of(self.schema)

    @property
    def coverage(self) -> SearchCoverage:
        """Report of how many rows were searched by which method."""
        return self._coverage

    def to_arrow(self) -> pa.Table:
        """The rows as a table."""
        return self._rows

    def to_pandas(self, dtypes: Dtypes = "nullable") -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame, unchanged.  ``dtypes="numpy"`` uses NumPy's types, which may lose
        digits."""
        return to_pandas(self._rows, dtypes)

    def to_polars(self) -> polars.DataFrame:
        """The rows as a DataFrame of Polars."""
        return to_polars(self._rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow PyCapsule."""
        return self._rows.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<lancewal.SearchRows: {self._rows.num_rows} rows of version {self.receipt.version}>"
