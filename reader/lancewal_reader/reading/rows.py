"""``Rows``: a planned read whose rows can be read repeatedly, as Arrow, pandas, Polars or DuckDB."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from lancewal_core.errors import InvalidInput
from lancewal_core.rows.schema import alike_but_for_case
from lancewal_reader.forms.given_numbers import whole_of
from lancewal_reader.forms.pandas_frames import Dtypes, pandas_frame
from lancewal_reader.point.receipt import Receipt

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars


class PlannedRows(Protocol):
    """A planned read (``reads.Planned``), or a planned change feed (``changes.feed.PlannedFeed``)."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""

    @property
    def receipt(self) -> Receipt:
        """Receipt of the state that is read."""


class RowSource(Protocol):
    """Reader of planned rows: ``reads.Reads``, or ``changes.feed.Feeds``."""

    def again(self, planned: Any) -> tuple[Any, Iterator[pa.RecordBatch]]:
        """Read the plan's rows again.  Return the plan and the rows."""


class Rows:
    """A planned read.  Its receipt fixes its rows, and each use reads them again.

    Every use returns the same rows, in any order, whatever was written, merged, compacted or cleaned up since.  If the
    rows no longer exist, the use raises ``VersionGone``, ``OutsideHistoryWindow`` or ``RecordsGivenUp``.  If a needed
    object is lost or damaged, it raises ``ObjectMissing`` or ``ObjectCorrupt``.  With a ``limit``, each use returns
    that many of the rows, which may be different ones each time.

    Batches are read on demand.  Streaming needs the memory of some batches and of the unmerged rows.  Libraries that
    accept Arrow streams accept this object itself (``__arrow_c_stream__``).  Threads may share it.
    """

    def __init__(self, reads: RowSource, planned: PlannedRows, limit: int | None = None) -> None:
        self._reads = reads
        self._planned: Any = planned  # as ``reads`` made it
        self._limit = limit

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows.  Its metadata has the receipt, and the number of keys that were left out
        (``left_out_of``).
        """
        return self._planned.schema

    @property
    def receipt(self) -> Receipt:
        """Receipt of the state that is read."""
        receipt: Receipt = self._planned.receipt
        return receipt

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow stream, for one pass."""
        self._planned, batches = self._reads.again(self._planned)
        return reader_of(self.schema, batches, self._limit)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch."""
        return iter(self.to_reader())

    def to_arrow(self) -> pa.Table:
        """The rows as one table in memory."""
        return self.to_reader().read_all()

    def to_pandas(self, dtypes: Dtypes = "nullable") -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame, unchanged.  ``dtypes="numpy"`` uses NumPy's types, which may lose
        digits."""
        return to_pandas(self.to_arrow(), dtypes)

    def to_polars(self) -> polars.DataFrame:
        """The rows as a DataFrame of Polars."""
        return to_polars(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a DuckDB relation, in ``connection`` or in a new one.  Each query of the relation reads the rows
        again.

        Raises ``InvalidInput`` if names of columns differ only in case, which DuckDB ignores.
        """
        duck = library("duckdb", "to_duckdb")
        alike = alike_but_for_case(self.schema)
        if alike:
            raise InvalidInput(
                f"to_duckdb(): DuckDB does not tell {alike} apart. Read one of them by columns=, or rename them by "
                "to_arrow().rename_columns(...)"
            )
        return (duck.connect() if connection is None else connection).from_arrow(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow PyCapsule: a stream for one pass, a new one at each call."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """The schema of the stream, without reading anything."""
        return self.schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        return f"<lancewal.Rows of version {self.receipt.version}: {', '.join(self.schema.names)}>"


def reader_of(schema: pa.Schema, batches: Iterator[pa.RecordBatch], limit: int | None) -> pa.RecordBatchReader:
    """Return the batches as an Arrow stream, of at most ``limit`` rows if it is given."""
    wanted = batches if limit is None else _limited(batches, limit)
    return pa.RecordBatchReader.from_batches(schema, map(_without_parts_of_vectors, wanted))


def _without_parts_of_vectors(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy each column of vectors that is a slice of a longer one and has nulls: Polars (2.1) refuses such slices."""
    for at, column in enumerate(batch.columns):
        vectors = pa.types.is_fixed_size_list(column.type) and column.null_count > 0
        if vectors and len(column.values) != len(column) * column.type.list_size:
            whole = column.take(pa.array(range(len(column)), pa.int64()))
            batch = batch.set_column(at, batch.schema.field(at), whole)
    return batch


def limit_of(given: object) -> int | None:
    """Check a user's limit.  Raises ``InvalidInput`` if it is not a valid limit."""
    limit = whole_of(given)
    if limit is None and given is not None:
        raise InvalidInput(f"limit {given!r}: expected an integer from 0 on, or None for all rows")
    return limit


def _limited(batches: Iterator[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    left = limit
    while left:
        batch = next(batches, None)
        if batch is None:
            return
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)


def to_pandas(rows: pa.Table, dtypes: Dtypes) -> pandas.DataFrame:
    library("pandas", "to_pandas")
    return pandas_frame(rows, dtypes)


def to_polars(rows: pa.Table) -> polars.DataFrame:
    found: polars.DataFrame = library("polars", "to_polars").from_arrow(rows)
    return found


def library(name: str, method: str) -> Any:
    """Import an optional library.  If it is not installed, ``InvalidInput`` says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidInput(f"{method}() needs {name}, which is not installed: pip install {name}") from error
