"""A bulk load of a Spark DataFrame: executors write Parquet into a staging folder, and the driver loads it.

The guarantees are those of ``part``, and the load begins before Spark computes the first row.  A second call with the
same staging folder loads its files if Spark had finished writing them.  Otherwise Spark writes them first.

Spark's own writer is parallel and commits a folder as a whole (``_SUCCESS``).  The decision about each row needs the
table at the time of the commit, so the driver alone decides.

A classic session must be started before this module is imported (``spark_session``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from lancewal_core.errors import InvalidInput, SparkJobFailed, TableMissing
from lancewal_core.open import Address
from lancewal_core.process.library_errors import first_line
from lancewal_core.settings.load import Settings
from lancewal_core.store.address import as_spark_writes
from lancewal_core.store.obstore import open_files
from lancewal_flusher.tasks.spark_session import spark_errors
from lancewal_tables.load.columns import check_columns
from lancewal_tables.load.duplicates import Duplicates
from lancewal_tables.load.part import PartLoaded
from lancewal_tables.load.whole import LoadBounds, LoadSummary, begin, load_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DONE = "_SUCCESS"
_OPTIONS = dict.fromkeys(("outputTimestampType", "spark.sql.parquet.outputTimestampType"), "TIMESTAMP_MICROS")
"""Make Spark write times as 64 bits, whatever the session says.

PySpark 4.0 ignores both options and writes INT96, which is loaded exactly too."""


def load_dataframe(
    settings: Settings,
    dataframe: DataFrame,
    staging: str,
    *,
    name: str | None = None,
    duplicates: Duplicates = Duplicates.ERROR,
    bounds: LoadBounds | None = None,
    landed: Callable[[PartLoaded], None] = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> LoadSummary:
    """Load ``dataframe`` into the table at ``table.uri`` through the folder ``staging``, which is not deleted.

    ``staging``: a folder that does not exist yet, or that an earlier call has written.  Driver and executors must both
    reach the folder.  The driver reads Spark's ``s3a://`` as ``s3://``.  ``name``: name of the load, by default derived
    from ``staging``.  The other arguments and the errors are those of ``load_files``.  Raises ``SparkJobFailed`` if
    Spark cannot write.
    """
    from lancewal_reader.spark.types import target_schema

    name = name or f"spark-{hashlib.sha256(staging.encode()).hexdigest()[:32]}"
    address = as_spark_writes(staging)
    contract = Address.of(settings).contract()
    check_columns(target_schema(dataframe.schema), contract.loaded_rows, "the DataFrame")
    begin(settings, name)
    if not _is_written(address, settings):
        try:
            dataframe.write.options(**_OPTIONS).parquet(staging)
        except spark_errors() as error:
            raise SparkJobFailed(f"Spark could not write {staging}: {first_line(error)}") from error
        if not _is_written(address, settings):
            raise InvalidInput(
                f"Spark has written {staging}, and the driver finds no {_DONE} at {address}: name a folder that both reach"
            )
    return load_files(
        settings, [address], name=name, duplicates=duplicates, bounds=bounds, landed=landed, stopping=stopping
    )


def _is_written(address: str, settings: Settings) -> bool:
    try:
        return open_files(address, settings.storage.options).size(_DONE) is not None
    except TableMissing:
        return False
