"""Calls of a program with a Spark session: a count without rows, and a view.

Both plan where Spark makes data sources, next to the driver, so they work through Spark Connect too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancewal_core.errors import InvalidInput
from lancewal_reader.spark.options import COUNT, NOT_OF_A_COUNT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def count(spark: SparkSession, table: str, filter: str | None = None, **read: object) -> int:
    """Return the number of rows, or of rows that pass ``filter``, a condition in Lance's SQL.  Each task sends one
    number and no row.

    Without ``filter`` one task counts as ``Table.count_rows`` does: by the sizes of the merged table, the keys of
    unmerged rows and the key index.  ``read``: options of the source by name (``consistency``, ``at``, ``at_least``,
    ``timeout_s``, ``max_staleness_s``, ``conflicts``, ``base_paths``).  Points and tokens are objects or text.  An
    option that is None is left out.
    """
    for name in NOT_OF_A_COUNT & read.keys():
        raise InvalidInput(f"count: the option {name} does not apply to a count. To count some rows, give a filter")
    if filter is not None and not isinstance(filter, str):
        raise InvalidInput(f"filter: Spark takes a condition in Lance's SQL as text, not {type(filter).__name__}")
    options = {**_texts({"filter": filter, **read}), COUNT: "true"}
    counted = spark.read.format("lancewal").options(**options).load(table).collect()
    return sum(row[0] for row in counted)


def view(spark: SparkSession, table: str, name: str, **options: object) -> DataFrame:
    """Make or replace the temporary view ``name`` for SQL, and return its DataFrame.  Both show the state of the table
    at this call.

    ``options``: those of the source by their names; a list of names may stand for ``columns``.
    """
    df = spark.read.format("lancewal").options(**_texts(options)).load(table)
    df.createOrReplaceTempView(name)
    return df


def _texts(options: dict[str, object]) -> dict[str, str]:
    return {
        name: ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in options.items()
        if value is not None
    }
